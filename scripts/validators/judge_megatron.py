"""Megatron-LM's verdict: its argument parser and validation, the transformer configuration, and the rank groups.

Ranks are played by torch's fake process group, so any number of GPUs is judged without one.
"""

import contextlib
import io
import os
import shlex
import sys

import torch

# Megatron-LM looks at the GPU's generation: a Hopper is meant.
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.device_count = lambda: 8

import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state, utils  # noqa: E402
from megatron.core.models.common.embeddings import rope_utils  # noqa: E402
from megatron.core.num_microbatches_calculator import (  # noqa: E402
    destroy_num_microbatches_calculator,
    init_num_microbatches_calculator,
)
from megatron.training import arguments  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402
from packaging.version import Version  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

arguments.get_device_arch_version = lambda: 9
# Transformer Engine is built for a GPU's CUDA: it is said to be there, its kernels are not called.
utils._te_version = Version("2.14.0")
rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = object()
for kernel in ["permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs", "unpermute"]:
    setattr(moe_utils, "fused_" + kernel, object())


def refusal(files, world_size):
    os.environ.update(WORLD_SIZE=str(world_size), RANK="0", LOCAL_RANK="0")
    sys.argv = ["pretrain_gpt.py", *shlex.split(files["megatron.args"])]
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            args = arguments.parse_args()
            arguments.validate_args(args)
            arguments.core_transformer_config_from_args(args)
            microbatches(args)
            groups(args, world_size)
    except SystemExit:
        return told.getvalue() or "the command line is refused"
    except Exception as error:
        return error
    finally:
        destroy_num_microbatches_calculator()
        parallel_state.destroy_model_parallel()
        if dist.is_initialized():
            dist.destroy_process_group()
    return None


def microbatches(args):
    init_num_microbatches_calculator(
        args.rank, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, args.data_parallel_size
    )


def groups(args, world_size):
    dist.init_process_group("fake", world_size=world_size, rank=0, store=FakeStore())
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )
