"""Evidence on PyTorch's automatic mixed precision: does it pay here, and does resume keep the bits?"""
