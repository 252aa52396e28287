#!/bin/sh
# Run a command in the working folder, the image's copy or a checkout mounted over it, after what only a running
# container can know: may it write here, and is there git?
for place in . .dvc .dvc/cache .dvc/tmp checkpoints data reports results; do
    if [ -e "$place" ] && ! [ -w "$place" ]; then
        echo "ampcheck: user $(id -u) can't write to $(realpath "$place"): mount the checkout without :ro, and give" \
            "docker run --user the number of its owner, $(stat -c %u:%g "$place")" >&2
        exit 1
    fi
done
if ! git rev-parse --git-dir > /dev/null 2>&1; then
    echo "ampcheck: no git in $PWD: all is measured; only dvc's params diff, metrics diff and experiments need git" >&2
    DVC_SYSTEM_CONFIG_DIR=$(dirname "$0")/without_git
    export DVC_SYSTEM_CONFIG_DIR
fi
exec "$@"
