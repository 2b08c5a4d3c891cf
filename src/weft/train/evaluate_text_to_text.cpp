// TextToTextEvaluation: one pair after the other.
#include "weft/train/evaluate_text_to_text.h"

#include "weft/tensor/host_access.h"

namespace weft {

TextToText text_to_text_of(const InstructExample& example, const std::string& place) {
  const auto& m = example.messages;
  if (m.size() != 2 || m[0].role != "user" || !m[1].is_answer)
    throw Error("{}: the model reads one text and writes another: give one question and its answer, nothing more",
                place);
  return {m[0].content, m[1].content};
}

void TextToTextEvaluation::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  check(!source.empty() && !target.empty(), "a text without tokens");
  if (num_texts_++ % mesh_.shape().dp() != mesh_.data_rank()) return;
  std::vector<int32_t> before(target.size(), model_.config().first_token);
  std::copy(target.begin(), target.end() - 1, before.begin() + 1);
  const Tensor logits = model_.logits(context_, before, model_.encode(context_, source));
  if (!logits || mesh_.place().tp != 0) return;
  const DType wide = Context::wide(logits.dtype());
  const Tensor losses = context_.empty(wide, {int64_t(target.size())});
  context_.kernels.cross_entropy(context_.stream, losses, logits, target.data(), 0);
  const Tensor host = on_host(context_.stream, losses);
  for (size_t i = 0; i < target.size(); ++i)
    loss_sum_ += wide == DType::f64 ? host.data<double>()[i] : double(host.data<float>()[i]);
  num_targets_ += int64_t(target.size());
}

}  // namespace weft
