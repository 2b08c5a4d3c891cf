#!/usr/bin/env python3
"""Writes small quantised models by the formats' own tools, with what the tools say that their codes stand for.

    write_quantized.py TOOL OUT [--hidden N] [--layers N] [--every N] [--only NAME]

TOOL is one of llmcompressor, modelopt, older_compressed_tensors, bitsandbytes, transformers, gpt_oss, gptqmodel and autoawq; each may need an
environment of its own. OUT gets a folder for each way: config.json and model.safetensors as the tool wrote them, and expected.safetensors:
  ids         the prompt
  logits      those of transformers in fp32, with the weights that the tool decodes in fp32
  stride, every.NAME  each so many-th element of the decoded weight NAME
"""
import argparse
import glob
import json
import os
import shutil

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, MixtralConfig, Qwen3MoeConfig

args = None
IDS = [1, 17, 4, 29, 8, 8, 30, 2, 11, 23]


def config_of(kind="llama"):
    shared = dict(
        vocab_size=32, hidden_size=args.hidden, intermediate_size=int(args.hidden * args.ffn), num_hidden_layers=args.layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if kind == "mixtral":
        return MixtralConfig(**shared, num_local_experts=2, num_experts_per_tok=2)
    if kind == "qwen3_moe":
        return Qwen3MoeConfig(**shared, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=int(args.hidden * args.ffn),
                              head_dim=args.hidden // 4)
    return LlamaConfig(**shared)


def random_model(dtype, kind="llama"):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config_of(kind)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((1 + 0.1 * torch.randn_like(p)) if p.dim() == 1 else 0.15 * torch.randn_like(p))
            if p.dim() == 2 and "embed" not in name:  # columns and rows of several sizes
                p[1::8].abs_()  # so that some zeros are at an end of their range
                p.mul_(torch.exp(0.5 * torch.randn(p.shape[0], 1))).mul_(torch.exp(0.3 * torch.randn(1, p.shape[1])))
    return model.to(dtype)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", pad_token="w0", unk_token="w0")


def stored(folder):
    found = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        if path.endswith("expected.safetensors"):
            continue
        with safe_open(path, "pt") as f:
            for key in f.keys():
                found[key] = f.get_tensor(key)
    return found


def saved(folder, decoded, kind="llama"):
    """Keeps of `folder` what a reader needs, and writes what is expected: `decoded` holds weights by their names."""
    floats = (torch.float32, torch.float16, torch.bfloat16)
    plain = {k: v.float() for k, v in stored(folder).items() if k.endswith(".weight") and v.dtype in floats}
    decoded = {k: v.detach().float().contiguous() for k, v in decoded.items()}
    state = {**plain, **decoded}
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    scratch = folder + ".plain"
    os.makedirs(scratch, exist_ok=True)
    save_file({k: v.clone() for k, v in state.items()}, f"{scratch}/model.safetensors", {"format": "pt"})
    config = config_of(kind)
    config.tie_word_embeddings = False
    config.save_pretrained(scratch)
    model, info = AutoModelForCausalLM.from_pretrained(scratch, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad():
        logits = model.eval().float()(torch.tensor([IDS])).logits[0]
    shutil.rmtree(scratch)
    expected = {"every." + k: v.flatten()[::args.every].clone() for k, v in decoded.items()}
    expected.update(stride=torch.tensor([args.every], dtype=torch.int32), ids=torch.tensor(IDS, dtype=torch.int32), logits=logits.clone())
    for path in glob.glob(f"{folder}/*"):
        if os.path.basename(path) != "config.json" and not path.endswith(".safetensors"):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    save_file(expected, f"{folder}/expected.safetensors")
    json_path = f"{folder}/config.json"
    config = json.load(open(json_path))
    json.dump(config, open(json_path, "w"), indent=1)
    print(folder, sum(os.path.getsize(p) for p in glob.glob(f"{folder}/*")), "bytes", flush=True)


def folder_of(name):
    if args.only and args.only != name:
        return None
    folder = os.path.join(args.out, name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


# ---- llm-compressor, which writes compressed-tensors


def llmcompressor():
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, preset_name_to_scheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    torch.manual_seed(5)
    rows = torch.randint(3, 32, (16, 24)).tolist()
    data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * 24] * 16})

    def scheme(weights, acts=None):
        return {"group_0": QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights),
                                              input_activations=acts and QuantizationArgs(**acts))}

    dynamic = dict(num_bits=8, strategy="token", dynamic=True)
    plan = {
        "ct_w4a16": (GPTQModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="group", group_size=32, symmetric=True)))),
        "ct_w4a16_asym": (GPTQModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="group", group_size=32, symmetric=False)))),
        "ct_w4a16_actorder": (GPTQModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="group", group_size=32, symmetric=True, actorder="weight")))),
        "ct_w4a16_channel": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="channel", symmetric=False)))),
        "ct_w3a16": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=3, strategy="group", group_size=32, symmetric=False)))),
        "ct_w8a16": (GPTQModifier, dict(config_groups=scheme(dict(num_bits=8, strategy="channel", symmetric=True)))),
        "ct_mxfp8": (QuantizationModifier, dict(scheme="MXFP8A16")),
        "ct_w8a16_asym": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=8, strategy="group", group_size=32, symmetric=False)))),
        "ct_w8a8": (GPTQModifier, dict(scheme="W8A8")),
        "ct_w8a8_asym": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=8, strategy="channel", symmetric=False), dynamic))),
        "ct_w8a8_tensor": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=8, strategy="tensor", symmetric=True), dict(num_bits=8, strategy="tensor", symmetric=True)))),
        "ct_w4a8": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="channel", symmetric=True), dynamic))),
        "ct_fp8": (QuantizationModifier, dict(scheme="FP8")),
        "ct_fp8_dynamic": (QuantizationModifier, dict(scheme="FP8_DYNAMIC")),
        "ct_fp8_block": (QuantizationModifier, dict(scheme="FP8_BLOCK")),
        "ct_fp8_kv": (QuantizationModifier, dict(scheme="FP8", kv_cache_scheme=dict(num_bits=8, type="float", strategy="tensor", dynamic=False, symmetric=True))),
        "ct_mixed": (QuantizationModifier, dict(config_groups={
            "group_0": QuantizationScheme(targets=["re:.*self_attn.*"], weights=QuantizationArgs(num_bits=8, type="float", strategy="channel"), input_activations=QuantizationArgs(**dynamic, type="float")),
            "group_1": QuantizationScheme(targets=["re:.*mlp.*"], weights=QuantizationArgs(num_bits=4, strategy="group", group_size=32))})),
        "ct_nvfp4": (QuantizationModifier, dict(scheme="NVFP4")),
        "ct_nvfp4a16": (QuantizationModifier, dict(scheme="NVFP4A16")),
        "ct_mxfp4": (QuantizationModifier, dict(scheme="MXFP4A16")),
        "ct_nvfp4_mixed": (QuantizationModifier, dict(config_groups={
            "group_0": QuantizationScheme(targets=["re:.*self_attn.*"], weights=QuantizationArgs(num_bits=8, type="float", strategy="channel"), input_activations=QuantizationArgs(**dynamic, type="float")),
            "group_1": QuantizationScheme(targets=["re:.*mlp.*"], **preset_name_to_scheme("NVFP4A16", ["re:.*mlp.*"]).model_dump(include={"weights"}))})),
        "ct_nvfp4_experts": (QuantizationModifier, dict(scheme="NVFP4A16")),
        "ct_w4a16_experts": (QuantizationModifier, dict(config_groups=scheme(dict(num_bits=4, strategy="group", group_size=32)))),
        "ct_fp8_experts": (QuantizationModifier, dict(scheme="FP8_DYNAMIC")),
    }
    for name, (modifier, options) in plan.items():
        folder = folder_of(name)
        if not folder:
            continue
        kind = "qwen3_moe" if name.endswith("experts") else "llama"
        try:
            source = folder + ".float"
            random_model(torch.bfloat16, kind).save_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
            ignore = ["lm_head", "re:.*mlp.gate$"]
            if "config_groups" not in options:
                options["targets"] = "Linear"
            model = oneshot(model=model, dataset=data, tokenizer=tokenizer(), recipe=modifier(ignore=ignore, **options),
                            max_seq_length=24, num_calibration_samples=16)
            model.save_pretrained(folder, save_compressed=True)
            shutil.rmtree(source)
            q = json.load(open(f"{folder}/config.json"))["quantization_config"]
            tensors, decoded = stored(folder), {}
            for key, scale in tensors.items():
                if not key.endswith(".weight_scale"):
                    continue
                base = key[:-len("weight_scale")]
                packed = base + "weight_packed" in tensors
                groups = q["config_groups"].values()
                group = next(g for g in groups if (g.get("format") or q["format"]).endswith("pack-quantized") == packed)
                wargs = QuantizationArgs(**{k: v for k, v in group["weights"].items() if k != "observer_kwargs"})
                zero = tensors.get(base + "weight_zero_point")
                pairs = packed and tensors[base + "weight_packed"].dtype == torch.uint8
                if pairs:
                    rows, half = tensors[base + "weight_packed"].shape
                    codes = unpack_fp4_from_uint8(tensors[base + "weight_packed"], rows, 2 * half, torch.float32)
                elif packed:
                    shape = torch.Size(tensors[base + "weight_shape"].tolist())
                    codes = unpack_from_int32(tensors[base + "weight_packed"], wargs.num_bits, shape)
                    if zero is not None:
                        zero = unpack_from_int32(zero, wargs.num_bits, torch.Size([shape[0], scale.shape[-1]]), packed_dim=0)
                else:
                    codes = tensors[base + "weight"]
                if scale.dtype == torch.uint8:
                    scale = decompress_mx_scale(scale)
                g_idx = tensors.get(base + "weight_g_idx")
                decoded[base + "weight"] = dequantize(codes, scale.float(), zero_point=zero, args=wargs, dtype=torch.float32,
                                                      **({"g_idx": g_idx} if g_idx is not None else {}),
                                                      **({"global_scale": tensors.get(base + "weight_global_scale")} if pairs else {}))
            saved(folder, decoded, kind)
        except Exception as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, type(e), e, flush=True)


# ---- NVIDIA's ModelOpt


def modelopt():
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

    torch.manual_seed(5)
    batches = torch.randint(3, 32, (16, 24))
    with_cache = mtq.update_quant_cfg_with_kv_cache_quant(mtq.NVFP4_DEFAULT_CFG, mtq.FP8_KV_CFG["quant_cfg"])
    plan = {"modelopt_nvfp4": mtq.NVFP4_DEFAULT_CFG, "modelopt_nvfp4_kv": with_cache, "modelopt_nvfp4a16": mtq.W4A16_NVFP4_CFG,
            "modelopt_w4a8_nvfp4": mtq.W4A8_NVFP4_FP8_CFG, "modelopt_w4a8_mxfp4": mtq.W4A8_MXFP4_FP8_CFG,
            "modelopt_fp8": mtq.FP8_DEFAULT_CFG, "modelopt_mxfp8": mtq.MXFP8_DEFAULT_CFG, "modelopt_nvfp4_experts": mtq.NVFP4_DEFAULT_CFG}
    for name, options in plan.items():
        folder = folder_of(name)
        if not folder:
            continue
        kind = "qwen3_moe" if name.endswith("experts") else "llama"
        try:
            source = folder + ".float"
            random_model(torch.bfloat16, kind).save_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
            model = mtq.quantize(model, options, lambda m: [m(row[None]) for row in batches])
            with torch.no_grad():
                export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=folder)
            shutil.rmtree(source)
            tensors, decoded = stored(folder), {}
            for key, scale in tensors.items():
                if not key.endswith(".weight_scale"):
                    continue
                base = key[:-len("weight_scale")]
                codes = tensors[base + "weight"]
                rows, half = codes.shape
                if codes.dtype == torch.uint8 and scale.dtype == torch.uint8:
                    tensor = MXFP4QTensor(torch.Size([rows, 2 * half]), torch.float32, codes)
                    decoded[base + "weight"] = tensor.dequantize(scale=scale, block_sizes={-1: 32})
                elif codes.dtype == torch.uint8:
                    tensor = NVFP4QTensor(torch.Size([rows, 2 * half]), torch.float32, codes)
                    decoded[base + "weight"] = tensor.dequantize(scale=scale, double_scale=tensors[base + "weight_scale_2"],
                                                                 block_sizes={-1: 2 * half // scale.shape[-1]})
                elif scale.dtype == torch.uint8:
                    decoded[base + "weight"] = MXFP8QTensor(codes.shape, torch.float32, codes).dequantize(scale=scale)
                else:
                    decoded[base + "weight"] = codes.float() * scale.float()
            saved(folder, decoded, kind)
        except Exception as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, type(e), e, flush=True)


# ---- compressed-tensors until it had no orders of inputs (0.9.4), by its compressor alone


def older_compressed_tensors():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.utils import calculate_qparams

    torch.manual_seed(5)
    for name, symmetric in {"ct_g_idx": True, "ct_g_idx_asym": False}.items():
        folder = folder_of(name)
        if not folder:
            continue
        weights = QuantizationArgs(num_bits=4, strategy="group", group_size=32, symmetric=symmetric, actorder="group")
        random_model(torch.bfloat16).save_pretrained(folder)
        state, schemes = {}, {}
        for key, value in stored(folder).items():
            state[key] = value
            if not key.endswith("_proj.weight"):
                continue
            base = key[:-len("weight")]
            schemes[base[:-1]] = weights
            order = (torch.randperm(value.shape[1]) // 32).to(torch.int32)
            parts = [value[:, order == g] for g in range(value.shape[1] // 32)]
            scale, zero = calculate_qparams(torch.stack([p.amin(1) for p in parts], 1), torch.stack([p.amax(1) for p in parts], 1), weights)
            state.update({base + "weight_scale": scale.to(torch.bfloat16), base + "weight_zero_point": zero.to(torch.int8),
                          base + "weight_g_idx": order})
        compressor = BaseCompressor.load_from_registry("pack-quantized")
        decoded = {}
        for base, args_of in schemes.items():
            from compressed_tensors.quantization.lifecycle.forward import quantize
            part = {k: state[f"{base}.{k}"] for k in ("weight_scale", "weight_zero_point", "weight_g_idx")}
            codes = quantize(x=state[base + ".weight"], scale=part["weight_scale"], zero_point=part["weight_zero_point"],
                             g_idx=part["weight_g_idx"], args=args_of, dtype=torch.int8)
            decoded[base + ".weight"] = dequantize(codes, part["weight_scale"].float(), zero_point=part["weight_zero_point"],
                                                   g_idx=part["weight_g_idx"], args=args_of)
        packed = compressor.compress(state, names_to_scheme=schemes)
        save_file({k: v.contiguous() for k, v in packed.items()}, f"{folder}/model.safetensors", {"format": "pt"})
        config = json.load(open(f"{folder}/config.json"))
        quantization = QuantizationConfig(config_groups={"group_0": QuantizationScheme(targets=["Linear"], weights=weights)},
                                          format="pack-quantized", quantization_status="compressed", ignore=["lm_head"])
        config["quantization_config"] = json.loads(quantization.model_dump_json())
        json.dump(config, open(f"{folder}/config.json", "w"))
        saved(folder, decoded)


# ---- bitsandbytes, through transformers


def bitsandbytes():
    import bitsandbytes.functional as F
    from transformers import BitsAndBytesConfig

    four = dict(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    plan = {
        "bnb_nf4": dict(four, bnb_4bit_quant_type="nf4"),
        "bnb_nf4_double": dict(four, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
        "bnb_nf4_storage": dict(four, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_quant_storage=torch.bfloat16),
        "bnb_fp4": dict(four, bnb_4bit_quant_type="fp4"),
        "bnb_int8": dict(load_in_8bit=True),
        "bnb_nf4_experts": dict(four, bnb_4bit_quant_type="nf4"),
    }
    for name, options in plan.items():
        folder = folder_of(name)
        if not folder:
            continue
        kind = "mixtral" if name.endswith("experts") else "llama"
        try:
            random_model(torch.bfloat16, kind).save_pretrained(folder + ".float")
            model = AutoModelForCausalLM.from_pretrained(folder + ".float", dtype=torch.bfloat16, device_map={"": "cpu"},
                                                         quantization_config=BitsAndBytesConfig(**options))
            model.save_pretrained(folder)
            shutil.rmtree(folder + ".float")
            tensors, decoded = stored(folder), {}
            for key, value in tensors.items():
                if key.endswith(".weight.absmax"):
                    name = key[:-len(".absmax")]
                    parts = {k[len(name) + 1:]: v for k, v in tensors.items() if k.startswith(name + ".")}
                    state = F.QuantState.from_dict(parts, device="cpu")
                    shape, state.dtype = state.shape, torch.float32
                    # Its CPU kernel takes blocks to end with rows, though they are made across them.
                    state.shape = (shape.numel() // state.blocksize, state.blocksize)
                    decoded[name] = F.dequantize_4bit(tensors[name].view(torch.uint8).reshape(-1, 1), state).reshape(shape)
                elif key.endswith(".SCB"):
                    name = key[:-len("SCB")] + "weight"
                    decoded[name] = F.int8_vectorwise_dequant(tensors[name], value)
            saved(folder, decoded, kind)
        except Exception as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, type(e), e, flush=True)


# ---- gptqmodel: GPTQ and AWQ


def gptqmodel():
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.quantization import FORMAT, METHOD

    torch.manual_seed(5)
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in torch.randint(3, 32, (32, 24)).tolist()]
    wide = 128 if args.hidden % 128 == 0 else 32
    plan = {
        "gptq_sym": dict(bits=4, group_size=32, desc_act=False, sym=True),
        "gptq_asym": dict(bits=4, group_size=32, desc_act=False, sym=False),
        "gptq_desc_act": dict(bits=4, group_size=32, desc_act=True, sym=True),
        "gptq_desc_act_asym": dict(bits=4, group_size=32, desc_act=True, sym=False),
        "gptq_all": dict(bits=4, group_size=-1, act_group_aware=False, desc_act=False, sym=True),
        "gptq_wide": dict(bits=4, group_size=wide, desc_act=False, sym=False),
        "gptq_8": dict(bits=8, group_size=32, desc_act=False, sym=True),
        "gptq_8_all_asym": dict(bits=8, group_size=-1, act_group_aware=False, desc_act=False, sym=False),
        "gptq_3": dict(bits=3, group_size=32, desc_act=False, sym=False),
        "gptq_2": dict(bits=2, group_size=32, desc_act=False, sym=False),
        "gptq_v2": dict(bits=4, group_size=32, desc_act=False, sym=False, format=FORMAT.GPTQ_V2),
        "gptq_dynamic": dict(bits=4, group_size=32, desc_act=False, sym=True, dynamic={r"+:.*mlp.*": {"bits": 8, "group_size": 64}, r"-:.*k_proj": {}}),
        "gptq_experts": dict(bits=4, group_size=32, desc_act=False, sym=True),
        "awq_gptqmodel": dict(bits=4, group_size=32, sym=False, method=METHOD.AWQ, format=FORMAT.GEMM),
    }
    for name, options in plan.items():
        folder = folder_of(name)
        if not folder:
            continue
        kind = "qwen3_moe" if name.endswith("experts") else "llama"
        try:
            source = folder + ".float"
            random_model(torch.float16, kind).save_pretrained(source)
            tokenizer().save_pretrained(source)
            model = GPTQModel.load(source, QuantizeConfig(device="cpu", offload_to_disk=False, **options), trust_remote_code=False)
            model.quantize(rows, batch_size=1, backend=BACKEND.TORCH if not name.startswith("awq") else BACKEND.AUTO)
            model.save(folder)
            again = GPTQModel.load(folder, backend=BACKEND.TORCH if not name.startswith("awq") else BACKEND.TORCH_AWQ, device="cpu")
            decoded = {}
            for module_name, module in again.model.named_modules():
                if not hasattr(module, "qweight"):
                    continue
                module.scales = stored(folder)[module_name + ".scales"].float()  # those at hand were rounded to BF16
                if hasattr(module, "dequantize_weight"):
                    weight = module.dequantize_weight()
                else:
                    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
                    weight = dequantize_gemm(module.qweight, module.qzeros, module.scales, module.bits, module.group_size)
                decoded[module_name + ".weight"] = weight.float().T
            shutil.rmtree(source)
            saved(folder, decoded, kind)
        except Exception as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, type(e), e, flush=True)


# ---- AutoAWQ


def autoawq():
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.quantize.quantizer import AwqQuantizer
    from awq.utils.packing_utils import dequantize_gemm

    wide = 128 if args.hidden % 128 == 0 else 64
    for name, group in {"awq_gemm": 32, "awq_gemm_wide": wide}.items():
        folder = folder_of(name)
        if not folder:
            continue
        model = random_model(torch.float16)
        model.save_pretrained(folder)
        quantizer = AwqQuantizer.__new__(AwqQuantizer)
        quantizer.group_size, quantizer.w_bit, quantizer.zero_point = group, 4, True
        state, decoded = {}, {}
        for key, value in stored(folder).items():
            if not key.endswith("_proj.weight"):
                state[key] = value
        for module_name, linear in model.named_modules():
            if not module_name.endswith("_proj"):
                continue
            linear.weight.data, scales, zeros = quantizer.pseudo_quantize_tensor(linear.weight.data)
            packed = WQLinear_GEMM.from_linear(linear, 4, group, False, scales.t().contiguous(), zeros.t().contiguous())
            for part, value in packed.state_dict().items():
                state[f"{module_name}.{part}"] = value.contiguous()
            decoded[module_name + ".weight"] = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, group).T
        save_file(state, f"{folder}/model.safetensors", {"format": "pt"})
        config = json.load(open(f"{folder}/config.json"))
        from awq.models._config import AwqConfig
        config["quantization_config"] = AwqConfig(q_group_size=group, w_bit=4, zero_point=True, version="gemm").to_transformers_dict()
        json.dump(config, open(f"{folder}/config.json", "w"))
        saved(folder, decoded)


# ---- transformers' own FP8 of blocks; its quantisation needs a GPU, so that its operations are called one by one


def transformers():
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    class Quantizer:
        pass

    size = min(args.hidden // 2, 128)
    plan = {"fp8_blocks": dict(weight_block_size=(size, size)),
            "fp8_ue8m0": dict(weight_block_size=(size, size), scale_fmt="ue8m0"),
            "fp8_experts": dict(weight_block_size=(size, size))}
    for name, options in plan.items():
        folder = folder_of(name)
        if not folder:
            continue
        kind = "qwen3_moe" if name.endswith("experts") else "llama"
        try:
            quantizer = Quantizer()
            quantizer.quantization_config = FineGrainedFP8Config(**options, modules_to_not_convert=["lm_head"])
            random_model(torch.bfloat16, kind).save_pretrained(folder)
            state, decoded = {}, {}
            for key, value in stored(folder).items():
                if not key.endswith("_proj.weight"):
                    state[key] = value
                    continue
                state.update(Fp8Quantize(quantizer).convert({key: value}))
                scale = state[key[:-len("weight")] + "weight_scale_inv"]
                decoded[key] = Fp8Dequantize(quantizer)._dequantize_one(state[key], scale, torch.float32)
            save_file(state, f"{folder}/model.safetensors", {"format": "pt"})
            config = json.load(open(f"{folder}/config.json"))
            config["quantization_config"] = json.loads(json.dumps(quantizer.quantization_config.to_dict(), default=str))
            json.dump(config, open(f"{folder}/config.json", "w"))
            saved(folder, decoded, kind)
        except Exception as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, type(e), e, flush=True)


# ---- gpt-oss in MXFP4, whose codes are made up here and decoded by transformers


def gpt_oss():
    from transformers import GptOssConfig, Mxfp4Config

    folder = folder_of("gpt_oss_mxfp4")
    os.makedirs(folder)
    torch.manual_seed(11)
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False}
    config = GptOssConfig(
        vocab_size=32, hidden_size=args.hidden, intermediate_size=args.hidden // 2, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, sliding_window=4, num_local_experts=2, num_experts_per_tok=1,
        layer_types=["sliding_attention", "full_attention"], rope_theta=150000.0, rope_scaling=rope, bos_token_id=1, eos_token_id=2,
        pad_token_id=0)
    state = {}
    for name, p in AutoModelForCausalLM.from_config(config).state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = p.shape
            state[name + "_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
            state[name + "_scales"] = torch.randint(121, 127, (experts, outputs, inputs // 32), dtype=torch.uint8)
        else:
            noise = torch.randn(p.shape)
            state[name] = (1 + 0.1 * noise if "norm" in name else 0.5 * noise if p.dim() == 1 else 0.2 * noise).to(torch.bfloat16)
    save_file(state, f"{folder}/model.safetensors", {"format": "pt"})
    written = {**config.to_dict(), "architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}}
    json.dump(written, open(f"{folder}/config.json", "w"), indent=1, sort_keys=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.bfloat16, attn_implementation="eager",
        experts_implementation="eager").float().eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    expected = {"ids": torch.tensor(IDS, dtype=torch.int32), "stride": torch.tensor([args.every], dtype=torch.int32), "logits": logits.clone()}
    for name, p in model.state_dict().items():  # transformers has inputs by outputs
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            expected[f"every.{name}_blocks"] = p.transpose(1, 2).flatten()[::args.every].clone()
    save_file(expected, f"{folder}/expected.safetensors")


def main():
    global args
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", choices=["llmcompressor", "modelopt", "bitsandbytes", "transformers", "gpt_oss", "gptqmodel", "autoawq", "older_compressed_tensors"])
    parser.add_argument("out")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--ffn", type=float, default=0.5)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--every", type=int, default=37)
    parser.add_argument("--only")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    globals()[args.tool]()


if __name__ == "__main__":
    main()
