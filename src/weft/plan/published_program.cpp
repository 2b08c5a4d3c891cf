// stack_of_program: a table of programs, and what notes say of a run.
#include "weft/plan/published_program.h"

#include <algorithm>

namespace weft::plan {
namespace {

// How a program computes attention.
enum class Attention : uint8_t { scores_in_memory, flash_triton, flash2, newest };

// Cross-entropy over whole logits. PyTorch: cast to fp32, log-softmax, its gradient from one that is filled with
// zeros, cast back: 36 bytes. Megatron-LM's vocab_parallel_cross_entropy: cast, maximum, difference, exponential,
// sum, quotient, product with the gradient, cast back: 52. Compiled or in part fused: 28.
constexpr double kTorchLogits = 9, kMegatronLogits = 13, kFusedLogits = 7;

// What programs do, as far as is known. The first whose text stands in the column `source`.
struct Program {
  std::string_view text;
  Attention attention;
  double small_kernels = 1;  // times the bytes of norms, rotations, residuals and activations
  bool overlaps_tp = false;
  bool has_16bit_gradients = false;
  double logits = kTorchLogits;     // times the bytes of 16-bit logits, read and written once
  bool has_owned_matrices = false;  // ZeRO-1: each whole matrix is one rank's, who broadcasts it after the update
};
// Data, logging and what waits for the device between two steps; the one figure without a source.
constexpr double kHostSeconds = 0.04;
// Kernels of PyTorch, one for each norm and activation, and casts beside them; or several for each, in fp32.
constexpr double kSingle = 1.3, kEager = 2;
constexpr Program kPrograms[] = {
    {"utomodel", Attention::newest, 1, false, false, kFusedLogits},
    {"utoModel", Attention::newest, 1, false, false, kFusedLogits},
    {"maxtext", Attention::newest, 1, false, false, kFusedLogits},
    {"paxml", Attention::newest, 1, false, false, kFusedLogits},
    {"NVIDIA/", Attention::newest, 1, true, false,
     kFusedLogits},  // Transformer Engine: cuDNN's attention, Userbuffers
    {"NVIDIA-NeMo", Attention::newest, 1, true, false, kFusedLogits},
    {"NeMo", Attention::newest, 1, true, false, kFusedLogits},
    {"Megatron-Bridge", Attention::newest, 1, true, false, kFusedLogits},
    {"Megatron-LM", Attention::scores_in_memory, 1, false, false, kMegatronLogits},
    {"bigscience", Attention::scores_in_memory, 1, false, false, kMegatronLogits},
    {"Zero Bubble", Attention::flash2, 1, false, false, kMegatronLogits},
    {"mosaicml", Attention::flash_triton, kSingle},
    {"InternEvo", Attention::flash2, 1, false, true, kTorchLogits, true},  // its hybrid_zero_optim.py
    {"nanotron", Attention::flash2, kSingle},
    {"", Attention::flash2},
};

// Before Dao et al., "FlashAttention", arXiv:2205.14135; of V100, which it does not know; and what a program did on
// A100 it does on later devices with fused kernels.
Attention attention_kind(const PublishedRow& f, const Program& program, const Hardware& hardware) {
  const std::string& source = f.text("source");
  if (hardware.name.starts_with("v100")) return Attention::scores_in_memory;
  if (const size_t at = source.find("arXiv:"); at != std::string::npos)
    if (std::strtod(source.c_str() + at + 6, nullptr) < 2205.14) return Attention::scores_in_memory;
  const bool is_ampere = hardware.name.starts_with("a");
  if (program.attention == Attention::scores_in_memory && !is_ampere) return Attention::newest;
  return program.attention;
}

// Share of the catalogue's attention, which is that of FlashAttention-2 on A100 and between 2 and 3 on Hopper. Dao,
// "FlashAttention-2", 2023, section 4.1: 1.3 to 2.5 times as fast as FlashAttention in Triton, of which the least on
// A100 and the geometric mean on H100, whose own instructions it does not use; figures 4 to 7. Shah et al.,
// "FlashAttention-3", 2024, figures 5 and 6: causal, 0.5 to 0.65 of the peak forward and 0.4 to 0.55 backward; cuDNN
// likewise.
double attention_of(Attention attention, const Hardware& hardware) {
  const bool is_hopper = hardware.name.starts_with("h");
  switch (attention) {
    case Attention::flash_triton: return is_hopper ? 0.5 : 0.77;
    case Attention::flash2: return is_hopper ? 0.9 : 1;
    case Attention::newest: return is_hopper ? 1.45 : 1;
    case Attention::scores_in_memory: return 1;
  }
  return 1;
}

// Broadcasts one after the other, with nothing beside them.
double owner_broadcasts_s(const Recipe& recipe, const Hardware& hardware) {
  constexpr double kMatricesOfLayer = 5;  // queries with keys and values, output, gate, up, down
  const MeshShape& shape = recipe.mesh.shape;
  const double matrices = (kMatricesOfLayer * double(recipe.model.layers) + 2) / shape.pp;
  const double bytes = 2.0 * double(recipe.model.num_params()) / (shape.tp * shape.pp);
  return matrices * CostModel(hardware, shape).collective_s(CommOp::broadcast, bytes / matrices, Axis::shard);
}

}  // namespace

Stack stack_of_program(const PublishedRow& f, const Recipe& recipe, const Hardware& hardware) {
  const auto& program = *std::ranges::find_if(
      kPrograms, [&](const Program& p) { return f.text("source").find(p.text) != std::string::npos; });
  const MeshConfig& mesh = recipe.mesh;
  Stack s;
  // Products of rows with a scale each were no faster than 16-bit ones (torchtitan's table of both, 2025).
  s.has_fp8 = f.text("precision").find("fp8") != std::string::npos && !f.note("rowwise");
  s.step_overhead_s = kHostSeconds;
  if (program.has_owned_matrices && mesh.zero == Zero::optimizer)
    s.step_overhead_s += owner_broadcasts_s(recipe, hardware);
  const bool is_eager = f.note("eager") || f.note("compile off") || f.note("no compile");
  s.small_kernels = is_eager ? kEager : program.small_kernels;
  const Attention attention = attention_kind(f, program, hardware);
  s.has_fused_attention = attention != Attention::scores_in_memory;
  s.recomputes_scores = !s.has_fused_attention && f.text("recompute") == "selective";
  s.attention = attention_of(attention, hardware);
  s.has_narrow_heads = attention != Attention::flash_triton;
  s.has_epilogues = false;
  s.has_grouped_products = false;  // a launch to each, with which the figures of kPrograms were fitted
  s.has_16bit_gradients = program.has_16bit_gradients || f.note("MP mode PURE");
  s.has_sharded_dispatch = program.overlaps_tp;
  s.whole_logits = int(recipe.model.vocab / mesh.shape.tp);
  s.logits = program.logits;
  s.has_tp_copies = program.text.empty() && recipe.train.micro_batch > 1;
  s.has_tp_overlap = (program.overlaps_tp && mesh.sequence_parallel && recipe.model.experts == 0) ||
                     f.note("async TP (overlapped)") || f.note("AsyncTP") || f.note("async TP;");
  s.has_balanced_context = f.text("source").find("torchtitan") == std::string::npos;
  // Tuning on packed answers: SQuAD 1.1 in rows of 4096 (NVIDIA, "NeMo Framework: Performance", 2025), whose
  // documents have about 200 tokens.
  if (f.note("SFT") || f.note("LoRA") || f.note("packed 4096")) s.visible = 0.05;
  return s;
}

}  // namespace weft::plan
