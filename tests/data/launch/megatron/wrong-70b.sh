export CUDA_DEVICE_MAX_CONNECTIONS=8
pretrain_gpt.py --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 4096 \
    --vocab-size 128256 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 126 --bf16 --fp16 \
    --tensor-model-parallel-size 6 --pipeline-model-parallel-size 3 --context-parallel-size 6 \
    --num-virtual-stages-per-pipeline-rank 7 --recompute-granularity full \
    --overlap-param-gather --cp-comm-type a2a+p2p --cross-entropy-loss-fusion --cross-entropy-fusion-impl te \
    --num-layer 80 --transformer-impl te
