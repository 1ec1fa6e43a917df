"""What the GPU path reaches of what the device can do: `python -m benchmarks.gpu`."""
