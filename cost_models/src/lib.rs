//! How long a training step takes, and how many bytes it needs.
