// ForwardModel: stages one after the other, logits put together from the ranks' columns.
#include "weft/pretrained/forward_model.h"

#include <algorithm>

#include "weft/parallel/gather_columns.h"
#include "weft/pretrained/decoder_parts.h"

namespace weft {
namespace {

constexpr int kTag = 0;

void check_mesh(const ModelConfig& config, const MeshShape& s) {
  if (s.pp > config.layers)
    throw UsageError("--mesh pp={}: the model has {} layers: write at most that", s.pp, config.layers);
  if (s.tp > config.heads)
    throw UsageError("--mesh tp={}: the model has {} attention heads: write at most that", s.tp, config.heads);
  if (s.ep > 1 && s.ep > config.experts)
    throw UsageError("--mesh ep={}: the model has {} experts: write at most that", s.ep, config.experts);
  if (s.cp > 1) throw UsageError("--mesh cp={}: a model that only runs forward is cut by tp, pp, ep and dp", s.cp);
}

}  // namespace

ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelConfig& config, DType dtype)
    : context_(context), mesh_(mesh), dtype_(dtype) {
  make(config);
  model_->allocate(context, dtype);
}

ForwardModel::ForwardModel(Context& context, const Mesh& mesh, const ModelSource& source, DType dtype,
                           const BlockChoice& choice)
    : context_(context), mesh_(mesh), dtype_(dtype) {
  make(source.config());
  hold_blocks(context, source, *model_, choice);
  model_->allocate(context, dtype);
  load(source);
}

void ForwardModel::make(const ModelConfig& config) {
  const MeshShape& shape = mesh_.shape();
  check_mesh(config, shape);
  constexpr int64_t kUsualTokens = 2048;
  const std::vector<DecoderPart> stages =
      decoder_parts(config, std::min(config.context, kUsualTokens), "", {.num_ranks = shape.pp});
  model_ = std::make_unique<Decoder>(config, partition_of(mesh_, false), stages[size_t(mesh_.place().pp)]);
}

bool ForwardModel::is_speaker() const { return has_result() && mesh_.place().tp == 0 && mesh_.data_rank() == 0; }

Var ForwardModel::receive(int64_t rows) {
  if (mesh_.place().pp == 0) return {{}, &context_};
  const Tensor x = context_.empty(dtype_, {rows, config().hidden});
  mesh_.pp().recv(x, mesh_.place().pp - 1, kTag);
  return {x, &context_};
}

void ForwardModel::send(const Tensor& x) { mesh_.pp().send(x, mesh_.place().pp + 1, kTag); }

Tensor ForwardModel::logits(const Pass& pass, int64_t first, int64_t count) {
  Brackets none;
  Var hidden = model_->forward(context_, pass, receive(pass.num_tokens), none);
  if (!has_result()) {
    send(hidden.value);
    return {};
  }
  hidden.value = hidden.value.slice_rows(first, count);
  const Tensor mine = model_->logits(hidden).value;
  const int64_t vocab = config().vocab;
  const Shape shape{count, vocab};
  if (!logits_ || logits_.shape() != shape) logits_ = context_.empty(Context::wide(dtype_), shape);
  gather_columns(context_, mesh_.tp(), logits_, mine);
  return logits_;
}

ForwardModel::BeforeHead ForwardModel::before_head(const Pass& pass) {
  Brackets none;
  const Var x = receive(pass.num_tokens);
  if (!has_result()) {
    send(model_->forward(context_, pass, x, none).value);
    return {};
  }
  BeforeHead result;
  model_->result(context_, pass, x, none, [&](const Partition&, Param& weight, float softcap, const Var& hidden) {
    result = {hidden.value, &weight, softcap};
    return hidden;
  });
  return result;
}

double ForwardModel::loss(const Pass& pass, const int32_t* targets) {
  Brackets none;
  const Var x = receive(pass.num_tokens);
  if (!has_result()) {
    send(model_->forward(context_, pass, x, none).value);
    return 0;
  }
  const Tensor sum = model_->loss(context_, pass, x, targets, 0, none).value;
  return mesh_.place().tp == 0 ? double(*sum.data<float>()) : 0;
}

int32_t ForwardModel::share(int32_t token) {
  const Tensor t = context_.empty(DType::i32, {1});
  *t.data<int32_t>() = token;
  mesh_.pp().broadcast(t, mesh_.shape().pp - 1);
  return *t.data<int32_t>();
}

}  // namespace weft
