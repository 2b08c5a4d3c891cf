EP=${EP:-8}
MOE_ARGS="
    --num-experts 64
    --moe-router-topk 6
    --moe-ffn-hidden-size 1408
    --moe-shared-expert-intermediate-size 2816
    --moe-layer-freq ([0]*1+[1]*26)
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-3
    --moe-router-pre-softmax
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --expert-model-parallel-size $EP
"
MLA_ARGS="--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128"
python -m torch.distributed.launch --nproc_per_node=8 --nnodes=$NNODES pretrain_gpt.py $MOE_ARGS $MLA_ARGS \
  --num-layers 27 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 10944 --swiglu \
  --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights \
  --hidden-dropout 0 --attention-dropout 0 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 102400 \
  --micro-batch-size 1 --global-batch-size 512 --train-iters 1000 --lr 4.2e-4 --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3 --bf16 --use-distributed-optimizer \
  --tensor-model-parallel-size $TENSOR_RANKS $EXTRA_ARGS
