#!/bin/bash
# Llama-3.1-70B on 64 GPUs, as the examples of Megatron-LM write their scripts.
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=4
PP=${PP:-4}
MODEL_ARGS=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256
    --position-embedding-type rope --normalization RMSNorm --swiglu
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
)
TRAINING_ARGS="--micro-batch-size 1 --global-batch-size 128 --bf16 --train-iters 100 --lr 1e-4"
torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py "${MODEL_ARGS[@]}" $TRAINING_ARGS \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
    --num-virtual-stages-per-pipeline-rank 5 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --mock-data --tokenizer-type NullTokenizer
