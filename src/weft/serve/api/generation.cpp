// Generation: tokens arrive from the engine's thread and become text on a worker's.
#include "weft/serve/api/generation.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <random>

#include "weft/base/philox.h"
#include "weft/base/timing.h"
#include "weft/serve/api/reasoning_parser.h"
#include "weft/text/utf8.h"

namespace weft::api {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostPending = 1 << 14;  // events that wait to be written

// Copies of an event's parts that outlive the call.
struct CopiedLogProbs {
  TokenLogProb own;
  int64_t rank = 0;
  std::vector<TokenLogProb> top;
  explicit CopiedLogProbs(const TokenLogProbs& from)
      : own(from.token), rank(from.rank), top(from.top.begin(), from.top.end()) {}
};
struct Event {
  size_t answer = 0;
  std::vector<CopiedLogProbs> prompt;
  std::vector<std::pair<int32_t, CopiedLogProbs>> tokens;
  std::optional<Finish> finish;
  Clock::time_point at = Clock::now();
};

TokenRecord record(const TokenSpeller& speller, const CopiedLogProbs& from) {
  TokenRecord result{
      .own = {from.own.token, speller.spell(from.own.token), from.own.log_prob}, .is_known = true, .rank = from.rank};
  for (const TokenLogProb& entry : from.top)
    result.top.push_back({entry.token, speller.spell(entry.token), entry.log_prob});
  return result;
}

// An answer being made.
struct Answer {
  Choice choice;
  TextStream text;
  TokenSpeller speller;
  StopFinder stops;
  std::optional<ReasoningParser> reasoning;
  std::optional<ToolCallParser> tools;
  RequestId id = 0;
  std::optional<Clock::time_point> last_token;

  bool is_thinking() const { return (reasoning && reasoning->is_inside()) || (tools && tools->is_thinking()); }
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(Plan plan, std::unique_ptr<ReplyForm> form, std::shared_ptr<http::Exchange> exchange, Metrics& metrics);
  void start();

 private:
  class Sink;
  void add_answer(int64_t prompt, int64_t index);
  Request request_of(const Answer& answer, int64_t index) const;
  void receive(Event event);
  void pump();
  void handle(Event& event);
  void take_prompt(Answer& answer, const Event& event);
  void take_tokens(Answer& answer, const Event& event);
  void finish(Answer& answer, const Finish& finish, Piece piece);
  void add_text(Answer& answer, std::string text, bool is_last, Piece& piece) const;
  void add_reasoning(std::string_view text, Piece& piece) const;
  std::string take_calls(Answer& answer, std::string_view text, bool is_last, Piece& piece) const;
  void tell(Answer& answer, Piece piece);
  void choose_best();
  void end();
  void fail(const ApiError& error);
  void cancel();
  Engine& engine() const { return *progress_.plan.model->engine; }

  Progress progress_;
  const std::unique_ptr<ReplyForm> form_;
  const std::shared_ptr<http::Exchange> exchange_;
  Metrics& metrics_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<std::unique_ptr<Answer>> answers_;
  size_t num_done_ = 0;
  bool is_over_ = false;

  std::mutex mutex_;  // of all below
  std::vector<Event> inbox_;
  bool is_pumping_ = false, is_overrun_ = false;
  std::vector<RequestId> ids_;
};

// What the engine tells goes to the job's inbox.
class Job::Sink : public RequestSink {
 public:
  Sink(std::shared_ptr<Job> job, size_t answer) : job_(std::move(job)), answer_(answer) {}
  void on_prompt(std::span<const TokenLogProbs> prompt) override {
    Event event{.answer = answer_};
    for (const TokenLogProbs& position : prompt) event.prompt.emplace_back(position);
    job_->receive(std::move(event));
  }
  void on_tokens(std::span<const TokenEvent> tokens) override {
    Event event{.answer = answer_};
    for (const TokenEvent& token : tokens) event.tokens.emplace_back(token.token, token.log_probs);
    job_->receive(std::move(event));
  }
  void on_finish(const Finish& finish) override { job_->receive({.answer = answer_, .finish = finish}); }

 private:
  const std::shared_ptr<Job> job_;
  const size_t answer_;
};

Job::Job(Plan plan, std::unique_ptr<ReplyForm> form, std::shared_ptr<http::Exchange> exchange, Metrics& metrics)
    : form_(std::move(form)), exchange_(std::move(exchange)), metrics_(metrics) {
  progress_.id = random_id();
  progress_.created = std::time(nullptr);
  progress_.plan = std::move(plan);
  const Plan& p = progress_.plan;
  for (size_t i = 0; i < p.prompts.size(); ++i) {
    progress_.usage.prompt_tokens += int64_t(p.prompts[i].size());
    for (int64_t k = 0; k < p.best_of; ++k) add_answer(int64_t(i), int64_t(i) * p.best_of + k);
  }
}

void Job::add_answer(int64_t prompt, int64_t index) {
  const Plan& p = progress_.plan;
  const Tokenizer& tokenizer = *p.model->tokenizer;
  const auto& before = p.prompts[size_t(prompt)];
  answers_.push_back(std::make_unique<Answer>(Answer{.text = TextStream(tokenizer, p.text, before),
                                                     .speller = TokenSpeller(tokenizer, before),
                                                     .stops = StopFinder(p.stops)}));
  answers_.back()->choice.index = index;
  answers_.back()->choice.prompt = prompt;
  if (p.reasoning != ReasoningPlace::outside && *reasoning_family(p.model->reasoning_format).open)
    answers_.back()->reasoning.emplace(p.model->reasoning_format, p.reasoning);
  if (!p.reads_tools) return;
  answers_.back()->tools.emplace(p.model->tool_format, p.tools);
  answers_.back()->tools->push(p.forced_beginning);
}

std::unique_ptr<TokenConstraint> constraint_of(const Plan& plan) {
  try {
    return plan.model->constraints->make(*plan.form);
  } catch (const UsageError& e) {
    throw ApiError(400, e.what(), {}, plan.form_key);
  }
}

Request Job::request_of(const Answer& answer, int64_t index) const {
  const Plan& p = progress_.plan;
  Request request;
  request.prompt = p.prompts[size_t(answer.choice.prompt)];
  request.adapter = p.adapter;
  request.max_tokens = p.max_tokens, request.min_tokens = p.min_tokens;
  request.sampling = p.sampling;
  // The first answer is that of n = 1; the others have seeds of their own.
  if (const uint64_t k = uint64_t(index % p.best_of); k > 0)
    request.sampling.seed = to_number(philox(p.sampling.seed, k, name_hash("answer")));
  request.stop_tokens = p.stop_tokens;
  request.bad_words = p.bad_words;
  if (p.form) request.constraint = constraint_of(p);
  request.logprobs = p.best_of > p.n ? std::optional(p.logprobs.value_or(0)) : p.logprobs;
  request.prompt_logprobs = p.prompt_logprobs;
  request.priority = p.priority;
  request.user = p.user;
  return request;
}

void Job::start() {
  const auto self = shared_from_this();
  try {
    for (size_t i = 0; i < answers_.size(); ++i) {
      const RequestId id = engine().submit(request_of(*answers_[i], int64_t(i)), std::make_unique<Sink>(self, i));
      answers_[i]->id = id;
      const std::lock_guard lock(mutex_);
      ids_.push_back(id);
    }
  } catch (...) {
    is_over_ = true;  // for what the first ones still tell
    cancel();
    throw;
  }
  if (progress_.plan.stream) {
    exchange_->begin_stream({.content_type = "text/event-stream",
                             .headers = {{"cache-control", "no-cache"}, {"x-request-id", progress_.id}}});
    exchange_->write(form_->begin(progress_));
    if (!progress_.plan.echoes.empty() && !progress_.plan.prompt_logprobs)
      for (const auto& answer : answers_)
        tell(*answer, {.content = progress_.plan.echoes[size_t(answer->choice.prompt)]});
  }
  exchange_->when_gone([weak = weak_from_this()] {
    const auto job = weak.lock();
    if (!job) return;
    job->cancel();
    job->metrics_.finished({.model = job->progress_.plan.model->name, .reason = FinishReason::cancelled});
  });
  // Events that came before the reply began are handled behind this task.
  receive({.answer = answers_.size()});
}

// On the engine's thread.
void Job::receive(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.size() < kMostPending)
      inbox_.push_back(std::move(event));
    else
      is_overrun_ = true;
    if (std::exchange(is_pumping_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->pump(); });
}

void Job::pump() {
  std::vector<Event> events;
  bool is_overrun = false;
  {
    const std::lock_guard lock(mutex_);
    is_overrun = is_overrun_;
    events.swap(inbox_);
    is_pumping_ = false;
  }
  if (is_overrun && !is_over_) return fail(ApiError(503, "the server cannot write as fast as it makes tokens"));
  try {
    for (Event& event : events) {
      if (is_over_) return;
      if (event.answer < answers_.size()) handle(event);
    }
  } catch (const std::exception& e) {  // what is wrong with one request ends that one
    fail(ApiError(500, e.what(), "engine_error"));
  }
}

void Job::handle(Event& event) {
  Answer& answer = *answers_[event.answer];
  if (!event.prompt.empty()) take_prompt(answer, event);
  if (!event.tokens.empty()) take_tokens(answer, event);
  if (event.finish) finish(answer, *event.finish, {});
}

void Job::take_prompt(Answer& answer, const Event& event) {
  const Plan& p = progress_.plan;
  const auto& prompt = p.prompts[size_t(answer.choice.prompt)];
  std::vector<TokenRecord>& records = answer.choice.prompt_tokens;
  for (const CopiedLogProbs& position : event.prompt) {
    const size_t at = records.size();
    if (at >= prompt.size()) return;
    const TokenSpeller speller(*p.model->tokenizer, std::span(prompt).first(at));
    if (position.own.token < 0)
      records.push_back({.own = {prompt[at], speller.spell(prompt[at]), 0}});
    else
      records.push_back(record(speller, position));
  }
  if (!p.stream || p.echoes.empty() || records.size() != prompt.size()) return;
  tell(answer, {.content = p.echoes[size_t(answer.choice.prompt)], .tokens = records});
}

void Job::take_tokens(Answer& answer, const Event& event) {
  const Plan& p = progress_.plan;
  Piece piece;
  for (const auto& [token, log_probs] : event.tokens) {
    if (answer.stops.is_stopped()) break;
    ++answer.choice.num_tokens;
    if (log_probs.own.token >= 0) answer.choice.log_prob += double(log_probs.own.log_prob);
    if (p.logprobs && log_probs.own.token >= 0) piece.tokens.push_back(record(answer.speller, log_probs));
    if (p.tells_token_ids) piece.token_ids.push_back(token);
    answer.speller.advance(token);
    const bool was_thinking = answer.is_thinking();
    add_text(answer, answer.text.push(token), false, piece);
    if (was_thinking && answer.is_thinking()) ++answer.choice.num_reasoning_tokens;
    if (answer.stops.is_stopped()) engine().cancel(answer.id);
  }
  if (!answer.last_token)
    metrics_.first_token(p.model->name, std::chrono::duration<double>(event.at - begin_).count());
  else
    metrics_.next_token(p.model->name, std::chrono::duration<double>(event.at - *answer.last_token).count() /
                                           double(event.tokens.size()));
  answer.last_token = event.at;
  tell(answer, std::move(piece));
}

// Stop strings are those of the content, so that what a model thinks does not end its answer. Of answers in parts the
// parser of calls finds the content; of others it must not see what comes behind the stop.
void Job::add_text(Answer& answer, std::string text, bool is_last, Piece& piece) const {
  if (answer.reasoning) {
    ReasoningParser::Output output = answer.reasoning->push(text);
    add_reasoning(output.reasoning, piece);
    text = std::move(output.content);
    if (is_last) {
      output = answer.reasoning->finish();
      add_reasoning(output.reasoning, piece);
      text += output.content;
    }
  }
  const auto stop = [&] {
    text = answer.stops.push(text);
    if (is_last) text += answer.stops.finish();
  };
  const bool is_framed = answer.tools && tool_family(progress_.plan.model->tool_format).is_framed;
  if (!is_framed) stop();
  if (answer.tools) text = take_calls(answer, text, is_last, piece);
  if (is_framed) stop();
  piece.content += text;
}

void Job::add_reasoning(std::string_view text, Piece& piece) const {
  if (progress_.plan.tells_reasoning) piece.reasoning += text;
}

// What is content beside them.
std::string Job::take_calls(Answer& answer, std::string_view text, bool is_last, Piece& piece) const {
  const size_t before = answer.choice.calls.size();
  if (piece.calls.empty()) piece.first_call = before;
  std::string content;
  const auto take = [&](ToolCallParser::Output output) {
    content += output.content;
    add_reasoning(output.reasoning, piece);
    if (progress_.plan.one_call) output.calls.resize(std::min(output.calls.size(), 1 - before - piece.calls.size()));
    for (ToolCall& call : output.calls) {
      std::string id = call.id.empty() ? "call_" + random_id().substr(0, 24) : call.id;
      piece.calls.push_back({std::move(id), std::move(call)});
    }
  };
  take(answer.tools->push(text));
  if (is_last) take(answer.tools->finish());
  return content;
}

void Job::tell(Answer& answer, Piece piece) {
  Choice& choice = answer.choice;
  if (piece.empty()) return;
  choice.add(piece);
  if (progress_.plan.stream) {
    exchange_->write(form_->piece(progress_, choice, piece));
  } else {
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    choice.token_ids.insert(choice.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  }
}

void Job::finish(Answer& answer, const Finish& finish, Piece piece) {
  Choice& choice = answer.choice;
  if (choice.is_done) return;
  choice.stop = answer.stops.stop();
  const bool is_stopped = answer.stops.is_stopped();
  metrics_.finished({.model = progress_.plan.model->name,
                     .reason = is_stopped ? FinishReason::stop : finish.reason,
                     .usage = finish.usage,
                     .times = finish.times,
                     .total_s = seconds_since(begin_),
                     .n = progress_.plan.n,
                     .max_tokens = progress_.plan.max_tokens});
  if (!is_stopped && (finish.reason == FinishReason::error || finish.reason == FinishReason::cancelled)) {
    return fail(finish.reason == FinishReason::error
                    ? to_api_error(finish)
                    : ApiError(503, "the server is shutting down; try again soon", "shutting_down"));
  }
  choice.reason = is_stopped ? FinishReason::stop : finish.reason;
  choice.is_done = true;
  add_text(answer, answer.text.finish(), true, piece);
  choice.has_end_token = finish.stop_token && !is_stopped;
  if (choice.has_end_token && progress_.plan.tells_token_ids) piece.token_ids.push_back(*finish.stop_token);
  tell(answer, std::move(piece));
  progress_.usage.completion_tokens += choice.completion_tokens();
  progress_.reasoning_tokens += choice.num_reasoning_tokens;
  progress_.usage.cached_tokens += finish.usage.cached_tokens;
  if (progress_.plan.stream) exchange_->write(form_->finished(progress_, choice));
  if (++num_done_ == answers_.size()) end();
}

// Of each prompt's answers those that the model finds likeliest, token for token.
void Job::choose_best() {
  const Plan& p = progress_.plan;
  const auto likeliness = [](const std::unique_ptr<Answer>& answer) {
    return answer->choice.log_prob / double(std::max<int64_t>(answer->choice.num_tokens, 1));
  };
  for (size_t first = 0; first < answers_.size(); first += size_t(p.best_of)) {
    const auto begin = answers_.begin() + std::ptrdiff_t(first), last = begin + p.best_of;
    if (p.best_of > p.n)
      std::stable_sort(begin, last, [&](const auto& a, const auto& b) { return likeliness(a) > likeliness(b); });
    for (auto it = begin; it != begin + p.n; ++it) {
      (*it)->choice.index = int64_t(progress_.choices.size());
      progress_.choices.push_back((*it)->choice);
    }
  }
}

void Job::end() {
  is_over_ = true;
  const Plan& p = progress_.plan;
  choose_best();
  if (p.stream) {
    exchange_->write(form_->end(progress_));
    exchange_->end_stream();
    return;
  }
  for (Choice& choice : progress_.choices) {
    if (p.echoes.empty()) continue;
    choice.content = p.echoes[size_t(choice.prompt)] + choice.content;
    choice.tokens.insert(choice.tokens.begin(), choice.prompt_tokens.begin(), choice.prompt_tokens.end());
  }
  exchange_->reply({.body = form_->whole(progress_), .headers = {{"x-request-id", progress_.id}}});
}

void Job::fail(const ApiError& error) {
  is_over_ = true;
  cancel();
  if (!progress_.plan.stream) return exchange_->reply(error_reply(error, form_->dialect()));
  exchange_->write(sse_event(error_json(error, form_->dialect()),
                             form_->dialect() == Dialect::anthropic ? "error" : std::string_view()));
  exchange_->end_stream();
}

void Job::cancel() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const RequestId id : ids) engine().cancel(id);
}

}  // namespace

void Choice::add(const Piece& piece) {
  reasoning += piece.reasoning;
  content += piece.content;
  calls.insert(calls.end(), piece.calls.begin(), piece.calls.end());
  const auto goes_on = [&](Stretch::Of of, bool is_longer, size_t end) {
    if (!is_longer) return;
    if (order.empty() || order.back().of != of) order.push_back({of, end});
    order.back().end = end;
  };
  goes_on(Stretch::Of::reasoning, !piece.reasoning.empty(), reasoning.size());
  goes_on(Stretch::Of::content, !piece.content.empty(), content.size());
  goes_on(Stretch::Of::calls, !piece.calls.empty(), calls.size());
}

std::vector<AnswerPart> parts_of(const Choice& choice) {
  std::vector<AnswerPart> parts;
  std::array<size_t, 3> begins{};
  for (const Stretch& s : choice.order) {
    const size_t begin = std::exchange(begins[size_t(s.of)], s.end);
    const std::string& text = s.of == Stretch::Of::reasoning ? choice.reasoning : choice.content;
    if (s.of != Stretch::Of::calls)
      parts.push_back({s.of, std::string_view(text).substr(begin, s.end - begin)});
    else
      for (size_t i = begin; i < s.end; ++i) parts.push_back({s.of, {}, &choice.calls[i]});
  }
  return parts;
}

std::string sse_event(const std::string& json, std::string_view name) {
  return name.empty() ? fmt::format("data: {}\n\n", json) : fmt::format("event: {}\ndata: {}\n\n", name, json);
}

std::string random_id() {
  thread_local std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

void check_num_answers(const Plan& plan) {
  const int64_t answers = int64_t(plan.prompts.size()) * plan.best_of, most = plan.model->engine->limits().max_open();
  if (answers <= most) return;
  throw ApiError(
      400,
      fmt::format("the request asks for {} answers, and this server holds {} at once: ask for fewer", answers, most),
      {}, plan.best_of > 1 ? "n" : "");
}

void start_generation(Plan plan, std::unique_ptr<ReplyForm> form, std::shared_ptr<http::Exchange> exchange,
                      Metrics& metrics) {
  check_num_answers(plan);
  std::make_shared<Job>(std::move(plan), std::move(form), std::move(exchange), metrics)->start();
}

}  // namespace weft::api
