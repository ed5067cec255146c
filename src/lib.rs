//! Plans distributed training.
