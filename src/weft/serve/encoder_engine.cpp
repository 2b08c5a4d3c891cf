// EncoderEngine: take what came, read the next texts, tell.
#include "weft/serve/encoder_engine.h"

#include <algorithm>
#include <utility>

#include "weft/autograd/floats_on_host.h"
#include "weft/serve/unit_length.h"
#include "weft/tensor/device_lost.h"

namespace weft {
namespace {

bool is_scored(const Sequence& s) { return s.request.kind == Request::Kind::weigh; }

}  // namespace

EncoderEngine::EncoderEngine(TextEncoder& model, Context& context, const Mesh& mesh, const EncoderOptions& options)
    : model_(model), context_(context), mesh_(mesh), options_(options) {
  if (mesh.shape().dp() > 1)
    throw UsageError("--mesh dp={}: each replica has an engine of its own, as weft serve gives it: leave dp out",
                     mesh.shape().dp());
  const TextEncoder::Sizes sizes = model.sizes();
  limits_ = {.vocab = sizes.vocab,
             .context = std::min(options.context, sizes.context),
             .max_running = options.max_running,
             .max_waiting = options.max_waiting,
             .labels = sizes.labels,
             .is_encoder = true};
}

bool EncoderEngine::take_requests() {
  std::optional<News> news = take(!waiting_.empty(), mesh_.world());
  if (!news) return false;
  for (SequencePtr& s : news->arrived) {
    const auto behind = std::ranges::upper_bound(waiting_, s->request.priority, {},
                                                 [](const SequencePtr& one) { return one->request.priority; });
    waiting_.insert(behind, std::move(s));
  }
  const auto is_cancelled = [&](const SequencePtr& s) {
    return news->cancels_all || std::ranges::find(news->cancelled, s->id) != news->cancelled.end();
  };
  for (SequencePtr& s : std::exchange(waiting_, {})) {
    if (is_cancelled(s))
      end(std::move(s), {.reason = FinishReason::cancelled});
    else
      waiting_.push_back(std::move(s));
  }
  tell_stats(0);
  return true;
}

void EncoderEngine::step() {
  std::vector<SequencePtr> texts;
  int64_t rows = 0;
  while (!waiting_.empty() && int64_t(texts.size()) < options_.max_running &&
         (texts.empty() || rows + waiting_.front()->size() <= options_.tokens_per_step)) {
    rows += waiting_.front()->size();
    texts.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  if (texts.empty()) return;
  tell_stats(texts.size());
  Finish finish{.reason = FinishReason::stop};
  std::exception_ptr failure;
  try {
    compute(texts);
    ++totals_.steps_total;
  } catch (const std::exception& e) {
    finish = {.reason = FinishReason::error, .error = e.what()};
    const bool is_of_these = dynamic_cast<const Error*>(&e) && !dynamic_cast<const DeviceLost*>(&e);
    if (!is_of_these || mesh_.world().size() > 1) failure = std::current_exception();
  }
  tell_stats(0);
  for (SequencePtr& s : texts) end(std::move(s), finish);
  if (failure) std::rethrow_exception(failure);
}

void EncoderEngine::compute(std::span<const SequencePtr> texts) {
  TextRows rows = model_.no_texts();
  const auto began = Clock::now();
  for (const SequencePtr& s : texts) {
    s->started = began;
    rows.add(s->tokens, s->request.second_text);
  }
  send(rows, texts);
  const Var hidden = model_.hidden(context_, rows);
  const auto scored = [](const SequencePtr& s) { return is_scored(*s); };
  Tensor states, scores;
  if (std::ranges::any_of(texts, scored)) scores = floats_on_host(context_, model_.scores(hidden, rows));
  if (!std::ranges::all_of(texts, scored)) states = floats_on_host(context_, hidden.value);
  const auto [vocab, context, width, labels] = model_.sizes();
  for (int64_t i = 0, row = 0; i < int64_t(texts.size()); row += texts[size_t(i++)]->num_prompt) {
    Sequence& s = *texts[size_t(i)];
    s.prefilled = Clock::now();
    totals_.prompt_tokens_total += s.num_prompt;
    if (is_scored(s))
      weigh(s, {scores.data<float>() + i * labels, size_t(labels)});
    else
      embed(s, {states.data<float>() + row * width, size_t(s.num_prompt * width)});
  }
}

void EncoderEngine::embed(Sequence& s, std::span<const float> rows) {
  const size_t width = rows.size() / s.tokens.size();
  std::vector<double> sums(width);
  for (int64_t t = 0; t < s.num_prompt; ++t) {
    const double weight = weight_of(s.request.pooling, t, s.num_prompt);
    if (weight == 0) continue;
    for (size_t i = 0; i < width; ++i) sums[i] += weight * double(rows[size_t(t) * width + i]);
  }
  const double weights = weights_of(s.request.pooling, s.num_prompt);
  vector_.clear();
  for (const double sum : sums) vector_.push_back(float(sum / weights));
  if (s.request.normalises) to_unit_length(vector_);
  s.sink->on_vector(vector_);
}

void EncoderEngine::weigh(Sequence& s, std::span<const float> scores) {
  vector_.clear();
  for (const int32_t label : s.request.weighed) vector_.push_back(scores[size_t(label)]);
  s.sink->on_vector(vector_);
}

void EncoderEngine::end(SequencePtr s, Finish finish) {
  s->sink->on_finish(finish_now(*s, std::move(finish)));
  s.reset();
  finished(1);
}

// Of a server that ends: nothing may stay open, and nothing more comes.
void EncoderEngine::end_all(FinishReason reason, const std::string& error) {
  close(reason, error);
  for (SequencePtr& s : std::exchange(waiting_, {})) end(std::move(s), {.reason = reason, .error = error});
  tell_stats(0);
}

void EncoderEngine::tell_stats(size_t running) {
  totals_.running = int64_t(running), totals_.waiting = int64_t(waiting_.size());
  publish(totals_);
}

// ---- other ranks: numbers of a step, all in i32: how many there are; for each text its tokens' count and where the
// second text begins; the tokens

void EncoderEngine::send(const TextRows& rows, std::span<const SequencePtr> texts) {
  if (mesh_.world().size() == 1) return;
  std::vector<int32_t> words{int32_t(texts.size())};
  for (const SequencePtr& s : texts) words.insert(words.end(), {int32_t(s->size()), int32_t(s->request.second_text)});
  words.insert(words.end(), rows.ids(), rows.ids() + rows.num_rows());
  broadcast(words);
}

void EncoderEngine::stop_others() {
  std::vector<int32_t> nothing;
  broadcast(nothing);
}

void EncoderEngine::follow() {
  for (;;) {
    std::vector<int32_t> words;
    broadcast(words);
    if (words.empty()) return;
    TextRows rows = model_.no_texts();
    const auto texts = size_t(words[0]);
    std::span<const int32_t> ids = std::span(words).subspan(1 + 2 * texts);
    for (size_t i = 0; i < texts; ++i) {
      const auto count = size_t(words[1 + 2 * i]);
      rows.add(ids.first(count), words[2 + 2 * i]);
      ids = ids.subspan(count);
    }
    model_.hidden(context_, rows);
  }
}

// The driver's words, on every rank.
void EncoderEngine::broadcast(std::vector<int32_t>& words) {
  Communicator& world = mesh_.world();
  if (world.size() == 1) return;
  const int driver = mesh_.shape().driver();
  Allocator& memory = context_.stream.host_memory();
  const Tensor count = memory.empty(DType::i32, {1});
  *count.data<int32_t>() = int32_t(words.size());
  {
    const Patience while_nothing_is_asked(world);
    world.broadcast(count, driver);
  }
  words.resize(size_t(*count.data<int32_t>()));
  if (words.empty()) return;
  const Tensor all = memory.empty(DType::i32, {int64_t(words.size())});
  std::ranges::copy(words, all.data<int32_t>());
  world.broadcast(all, driver);
  std::copy_n(all.data<int32_t>(), words.size(), words.begin());
}

}  // namespace weft
