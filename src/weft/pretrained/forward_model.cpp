// ForwardModel: stages one after the other, logits put together from the ranks' columns.
#include "weft/pretrained/forward_model.h"

#include <algorithm>
#include <cstring>

#include "weft/parallel/gather_columns.h"
#include "weft/pretrained/check_mesh.h"
#include "weft/pretrained/decoder_parts.h"
#include "weft/tensor/host_access.h"

namespace weft {
ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, DType dtype, WithoutMemory)
    : context_(context), mesh_(mesh), stages_(mesh.pp(), dtype), dtype_(dtype) {
  make(config);
  model_->prepare(context, dtype);
}

ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, DType dtype)
    : context_(context), mesh_(mesh), stages_(mesh.pp(), dtype), dtype_(dtype) {
  make(config);
  model_->allocate(context, dtype);
}

ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelSource& source, DType dtype,
                           const BlockChoice& choice, const FarLayers& far)
    : context_(context), mesh_(mesh), stages_(mesh.pp(), dtype), dtype_(dtype) {
  make(source.config());
  fill(
      far, [&](std::span<Param* const> params) { hold_blocks(context, source, params, choice); },
      [&](std::span<Param* const> params) { load_values(context, source, params); });
  for (RouterBias* b : model_->router_biases()) load_value(context, source, b->bias);
}

ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, const ModelSource* source,
                           DType dtype, const BlockChoice& choice, const FarLayers& far)
    : context_(context), mesh_(mesh), stages_(mesh.pp(), dtype), dtype_(dtype) {
  make(config);
  fill(
      far, [&](std::span<Param* const> params) { hold_block_shapes(context, source, params, choice); },
      [](std::span<Param* const>) {});
}

// Layer by layer, so that what loading takes beside the weights is that of one layer.
void ForwardModel::fill(const FarLayers& far, FillGroup hold, FillGroup load) {
  model_->prepare(context_, dtype_);
  const std::vector<std::vector<Param*>> groups = model_->param_groups();
  const size_t first = model_->embedding() ? 1 : 0, end = groups.size() - (has_result() ? 1 : 0);  // of the layers
  const auto layers = int64_t(end - first);
  check(far.count <= layers, "{} far layers of {}", far.count, layers);
  if (far.count > 0) far_ = std::make_unique<FarWeights>(context_, far, mesh_.world().rank());
  for (size_t g = 0; g < groups.size(); ++g) {
    hold(groups[g]);
    for (Param* p : groups[g])
      if (!p->is_only_blocks()) p->value = context_.empty(dtype_, p->shape);
    load(groups[g]);
    for (Param* p : groups[g]) p->hold_packed(context_);
    if (far_ && g >= first && g < end && far.has(int64_t(g - first), layers)) far_->add(g, groups[g]);
  }
  if (far_) far_->start();
}

void ForwardModel::make(const ModelConfig& config) {
  const MeshShape& shape = mesh_.shape();
  check_mesh(shape,
             {.layers = config.layers, .heads = config.heads, .experts = config.experts, .cuts_context = true});
  constexpr int64_t kUsualTokens = 2048;
  const std::vector<DecoderPart> stages =
      decoder_parts(config, std::min(config.context, kUsualTokens), "", {.num_ranks = shape.pp});
  model_ = std::make_unique<Decoder>(config, partition_of(mesh_, false), stages[size_t(mesh_.place().pp)]);
}

void ForwardModel::load(const ModelSource& source) {
  load_values(context_, source, *model_);
  for (Param* p : model_->params()) p->hold_packed(context_);
}

void ForwardModel::run(const Pass& pass, FunctionRef<void(const Var& x)> finish) {
  const Var x = stages_.receive(context_, {pass.num_tokens, config().residual_width()});
  if (has_result()) return finish(x);
  stages_.send(model_->forward(context_, pass, x, brackets()));
}

// A tensor that is kept for the next call, which may need less of it.
Tensor ForwardModel::part_of(Tensor& kept, DType dtype, Shape shape) {
  if (!kept || kept.numel() < shape.numel()) kept = context_.empty(dtype, {shape.numel()});
  return kept.slice_flat(0, shape);
}

Tensor ForwardModel::logits_of(const Var& hidden) {
  const Tensor mine = model_->logits(hidden).value;
  const Tensor all = part_of(logits_, Context::wide(dtype_), {hidden.value.dim(0), config().num_outputs()});
  if (config().scores_texts())
    context_.kernels.convert(context_.stream, all, mine);
  else
    gather_columns(context_, mesh_.tp(), all, mine);
  return all;
}

Tensor ForwardModel::logits(const Pass& pass, int64_t first, int64_t count) {
  Tensor result;
  run(pass, [&](const Var& x) {
    Var hidden = model_->forward(context_, pass, x, brackets());
    hidden.value = hidden.value.slice_rows(first, count);
    result = logits_of(hidden);
  });
  return result;
}

// Of rows that other ranks along cp have, zeros are added to what they give.
void ForwardModel::choose(const Tensor& hidden, std::span<const int32_t> rows) {
  chosen_hidden_ = part_of(chosen_, dtype_, {int64_t(rows.size()), config().hidden});
  const bool is_spread = mesh_.shape().cp > 1;
  if (is_spread) context_.kernels.fill(context_.stream, chosen_hidden_, 0);
  const int64_t first = hidden.dim(0) * mesh_.place().cp;
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {  // neighbours together
    const int64_t row = rows[begin] - first;
    end = begin + 1;
    if (row < 0 || row >= hidden.dim(0)) continue;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1 && rows[end] - first < hidden.dim(0)) ++end;
    const auto count = int64_t(end - begin);
    context_.stream.copy(chosen_hidden_.slice_rows(int64_t(begin), count), hidden.slice_rows(row, count));
  }
  if (is_spread) mesh_.cp().all_reduce(chosen_hidden_);
}

// Which rows the last layer is to give, or null: all. Where nothing is asked for, one all the same, so that nothing
// has to bear with no rows.
const WantedRows* ForwardModel::narrow(const Pass& pass, std::span<const int32_t> rows) {
  const PagedPlan* const paged = pass.attention.paged;
  if (config().mtp_layers > 0) return nullptr;  // it reads all rows
  const bool is_rising = std::ranges::adjacent_find(rows, std::ranges::greater_equal{}) == rows.end();
  if (!has_result() || !paged || paged->spread || !is_rising || int64_t(rows.size()) == pass.num_tokens)
    return nullptr;
  const auto last = int32_t(pass.num_tokens - 1);
  wanted_.choose(pass, rows.empty() ? std::span(&last, 1) : rows);
  return &wanted_;
}

Tensor ForwardModel::logits(const Pass& whole, std::span<const int32_t> rows) {
  Pass pass = whole;
  pass.wanted = narrow(whole, rows);
  Tensor result;
  run(pass, [&](const Var& x) {
    const Var hidden = model_->forward(context_, pass, x, brackets());
    if (config().mtp_layers > 0) keep(hidden.value);
    if (rows.empty()) return;
    if (!pass.wanted) return void(result = logits_of_rows(hidden.value, rows));
    chosen_hidden_ = hidden.value;
    result = logits_of(hidden);
  });
  return result;
}

Tensor ForwardModel::logits_of_rows(const Tensor& hidden, std::span<const int32_t> rows) {
  choose(hidden, rows);
  return logits_of({chosen_hidden_, &context_});
}

// Beyond the call, in a place that stays where it is.
void ForwardModel::keep(const Tensor& hidden) {
  left_ = part_of(kept_, dtype_, hidden.shape());
  context_.stream.copy(left_, hidden);
}

Tensor ForwardModel::predict(const Pass& pass, std::span<const int32_t> from, std::span<const int32_t> rows) {
  if (!has_result()) return {};
  const Tensor before = context_.empty(dtype_, {pass.num_tokens, config().hidden});
  context_.kernels.embedding(context_.stream, before, left_, {from.data(), 0, left_.dim(0)}, {}, nullptr);
  const Tensor hidden = model_->predict(context_, pass, pass.ids, {before, &context_}).value;
  keep(hidden);
  return rows.empty() ? Tensor{} : logits_of_rows(hidden, rows);
}

Var ForwardModel::hidden(const Pass& pass) {
  Var left;
  run(pass, [&](const Var& x) { left = model_->forward(context_, pass, x, brackets()); });
  return left;
}

Var ForwardModel::result(const Pass& pass, Decoder::Head head) {
  Var made;
  run(pass, [&](const Var& x) { made = model_->result(context_, pass, x, brackets(), head); });
  return made;
}

ForwardModel::BeforeHead ForwardModel::before_head(const Pass& pass) {
  BeforeHead found;
  result(pass, [&](const Partition&, const HeadView& head, const Var& hidden) {
    found = {hidden.value, head};
    return hidden;
  });
  return found;
}

double ForwardModel::loss(const Pass& pass, const int32_t* targets) {
  double sum = 0;
  run(pass, [&](const Var& x) {
    const Tensor loss = model_->loss(context_, pass, x, targets, 0, brackets()).value;
    if (mesh_.place().tp == 0) sum = double(*on_host(context_.stream, loss).data<float>());
  });
  return sum;
}

}  // namespace weft
