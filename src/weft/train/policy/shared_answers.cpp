// share_answers: sums of what each rank has of three tables, and zeros of the others.
#include "weft/train/policy/shared_answers.h"

#include <algorithm>

namespace weft {
namespace {

enum Field { kLength, kLogps, kIsCut, kHead };  // of the numbers before an answer's tokens

template <class T>
Tensor zeros(Allocator& memory, Shape shape) {
  Tensor t = memory.empty(dtype_of<T>(), shape);
  std::fill_n(t.data<T>(), t.numel(), T(0));
  return t;
}

}  // namespace

SharedAnswers share_answers(Communicator& world, int64_t count, int64_t most_tokens, const Answerer::Given& given,
                            std::span<const double> rewards) {
  Allocator memory;  // not part of the training's figures
  const int64_t stride = kHead + most_tokens;
  const Tensor ids = zeros<int32_t>(memory, {count, stride}), logps = zeros<float>(memory, {count, most_tokens}),
               worth = zeros<double>(memory, {count});
  for (size_t i = 0; i < given.answers.size(); ++i) {
    const GivenAnswer& a = given.answers[i];
    const int64_t row = given.first + int64_t(i);
    check(int64_t(a.tokens.size()) <= most_tokens, "an answer of {} tokens where {} were asked for", a.tokens.size(),
          most_tokens);
    int32_t* const to = ids.data<int32_t>() + row * stride;
    to[kLength] = int32_t(a.tokens.size()), to[kLogps] = int32_t(a.logps.size()), to[kIsCut] = a.is_cut;
    std::ranges::copy(a.tokens, to + kHead);
    std::ranges::copy(a.logps, logps.data<float>() + row * most_tokens);
    worth.data<double>()[row] = rewards[i];
  }
  for (const Tensor& part : {ids, logps, worth}) world.all_reduce(part);

  SharedAnswers all;
  for (int64_t row = 0; row < count; ++row) {
    const int32_t* const from = ids.data<int32_t>() + row * stride;
    const float* const of_tokens = logps.data<float>() + row * most_tokens;
    if (from[kLength] == 0) return {};  // an answer has a token at least
    all.answers.push_back({.tokens = {from + kHead, from + kHead + from[kLength]},
                           .logps = {of_tokens, of_tokens + from[kLogps]},
                           .is_cut = from[kIsCut] != 0});
  }
  all.rewards.assign(worth.data<double>(), worth.data<double>() + count);
  return all;
}

}  // namespace weft
