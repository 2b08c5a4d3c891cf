// FakeEngine: an engine that answers with a script, one token a step, and counts its blocks as a real one does.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "weft/serve/engine.h"

namespace weft {

struct FakeOptions {
  // What follows a prompt; the end token too, where it has one. Repeated when the request wants more.
  std::function<std::vector<int32_t>(const Request&)> answer;
  std::chrono::microseconds step{0};
  EngineLimits limits{.vocab = 257, .context = 4096, .max_running = 64, .max_waiting = 256};
  bool embeds = true;
};

// The bytes of a text, then the byte tokenizer's end token.
inline std::function<std::vector<int32_t>(const Request&)> saying(std::string text) {
  return [text](const Request&) {
    std::vector<int32_t> tokens;
    for (const char c : text) tokens.push_back(uint8_t(c));
    tokens.push_back(256);
    return tokens;
  };
}

// Requests that have not ended, of one moment: some go from waiting to running at any time.
inline int64_t open_of(const Engine& engine) {
  const EngineStats stats = engine.stats();
  return stats.running + stats.waiting;
}

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(FakeOptions options) : options_(std::move(options)), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const EngineLimits& limits() const override { return options_.limits; }
  std::vector<std::string> adapters() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, folder] : adapters_) names.push_back(name);
    return names;
  }
  void load_adapter(const std::string& name, const std::string& folder, Told told) override {
    {
      const std::lock_guard lock(mutex_);
      adapters_.emplace_back(name, folder);
    }
    told("");
  }
  bool unload_adapter(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    return std::erase_if(adapters_, [&](const auto& a) { return a.first == name; }) > 0;
  }
  std::string adapter_folder(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [one, folder] : adapters_)
      if (one == name) return folder;
    return {};
  }

  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override {
    if (request.kind == Request::Kind::embed && !options_.embeds) throw Unsupported("embeddings are not offered");
    const std::lock_guard lock(mutex_);
    const auto open = int64_t(waiting_.size() + running_.size());
    if (is_draining_ || open >= options_.limits.max_open()) throw Busy("the queue is full", 2);
    Job job{.id = ++last_id_, .sink = std::move(sink), .script = options_.answer(request)};
    last_request_ = {.prompt = request.prompt,
                     .sampling = request.sampling,
                     .stop_tokens = request.stop_tokens,
                     .bad_words = request.bad_words};
    last_request_.max_tokens = request.max_tokens, last_request_.priority = request.priority;
    last_request_.adapter = request.adapter, last_request_.second_text = request.second_text;
    job.request = std::move(request);
    const RequestId id = job.id;
    waiting_.push_back(std::move(job));
    changed_.notify_all();
    return id;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    changed_.notify_all();
  }

  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats = totals_;
    stats.running = int64_t(running_.size()), stats.waiting = int64_t(waiting_.size());
    stats.kv_blocks = 4096, stats.kv_block_tokens = 16;
    for (const Job& job : running_) stats.kv_blocks_used += job.blocks();
    return stats;
  }

  void drain(std::chrono::milliseconds patience) override {
    std::unique_lock lock(mutex_);
    is_draining_ = true;
    const auto is_idle = [&] { return waiting_.empty() && running_.empty(); };
    if (changed_.wait_for(lock, patience, is_idle)) return;
    for (const auto* jobs : {&waiting_, &running_})
      for (const Job& job : *jobs) cancelled_.push_back(job.id);
    changed_.notify_all();
    changed_.wait(lock, is_idle);
  }

  // Of the request that came last, what tests look at.
  Request last_request() {
    const std::lock_guard lock(mutex_);
    return {.prompt = last_request_.prompt,
            .adapter = last_request_.adapter,
            .second_text = last_request_.second_text,
            .max_tokens = last_request_.max_tokens,
            .sampling = last_request_.sampling,
            .stop_tokens = last_request_.stop_tokens,
            .bad_words = last_request_.bad_words,
            .priority = last_request_.priority};
  }

 private:
  struct Job {
    RequestId id = 0;
    Request request;
    std::unique_ptr<RequestSink> sink;
    std::vector<int32_t> script;
    int64_t made = 0;
    int64_t blocks() const { return (int64_t(request.prompt.size()) + made + 15) / 16; }
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_over_ || !waiting_.empty() || !running_.empty() || !cancelled_.empty(); });
      if (is_over_) {
        for (auto* jobs : {&waiting_, &running_}) {
          for (Job& job : *jobs) finish(job, FinishReason::cancelled, {});
        }
        return;
      }
      remove_cancelled();
      while (!waiting_.empty() && int64_t(running_.size()) < options_.limits.max_running) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
        totals_.prompt_tokens_total += int64_t(running_.back().request.prompt.size());
        tell_prompt(running_.back());
      }
      for (auto job = running_.begin(); job != running_.end();) job = advance(*job) ? job + 1 : running_.erase(job);
      changed_.notify_all();
      if (options_.step.count() > 0) changed_.wait_for(lock, options_.step, [&] { return is_over_; });
    }
  }

  void remove_cancelled() {
    for (const RequestId id : cancelled_) {
      for (auto* jobs : {&waiting_, &running_}) {
        const auto job = std::find_if(jobs->begin(), jobs->end(), [&](const Job& j) { return j.id == id; });
        if (job == jobs->end()) continue;
        finish(*job, FinishReason::cancelled, {});
        jobs->erase(job);
      }
    }
    cancelled_.clear();
  }

  // Token t follows with logits of 8 for t, 4 for t + 1, 0 for the rest.
  std::vector<float> logits_for(int32_t token) const {
    std::vector<float> logits(size_t(options_.limits.vocab), 0);
    logits[size_t(token)] = 8;
    logits[size_t(token + 1) % logits.size()] = 4;
    return logits;
  }

  void tell_prompt(Job& job) {
    if (!job.request.prompt_logprobs) return;
    LogProbs work;
    for (size_t i = 0; i < job.request.prompt.size(); ++i) {
      const int32_t token = job.request.prompt[i];
      const TokenLogProbs one =
          i == 0 ? TokenLogProbs{} : work.of(logits_for(token), token, *job.request.prompt_logprobs);
      job.sink->on_prompt({&one, 1});
    }
  }

  bool advance(Job& job) {
    if (job.request.kind == Request::Kind::weigh) {  // longer texts are judged better
      std::vector<float> logits(job.request.weighed.size());
      logits.front() = float(job.request.prompt.size());
      job.sink->on_vector(logits);
      return finish(job, FinishReason::stop, {});
    }
    if (job.request.kind == Request::Kind::embed) {
      const std::vector<float> vector{float(job.request.prompt.size()), 0.5f};
      job.sink->on_vector(vector);
      return finish(job, FinishReason::stop, {});
    }
    if (job.made >= job.request.max_tokens) return finish(job, FinishReason::length, {});
    const int32_t token = job.script[size_t(job.made) % job.script.size()];
    const auto& stops = job.request.stop_tokens;
    const bool is_stop = std::find(stops.begin(), stops.end(), token) != stops.end();
    ++job.made;
    ++totals_.generated_tokens_total;
    if (is_stop && job.made > job.request.min_tokens) return finish(job, FinishReason::stop, token);
    LogProbs work;
    TokenEvent event{.token = token};
    if (job.request.logprobs) event.log_probs = work.of(logits_for(token), token, *job.request.logprobs);
    job.sink->on_tokens({&event, 1});
    return job.made < job.request.max_tokens || finish(job, FinishReason::length, {});
  }

  bool finish(Job& job, FinishReason reason, std::optional<int32_t> stop_token) {
    job.sink->on_finish({.reason = reason,
                         .stop_token = stop_token,
                         .usage = {.prompt_tokens = int64_t(job.request.prompt.size()),
                                   .cached_tokens = 1,
                                   .completion_tokens = job.made}});
    return false;
  }

  const FakeOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_, running_;
  std::vector<RequestId> cancelled_;
  std::vector<std::pair<std::string, std::string>> adapters_{{"an-adapter", ""}};  // names and folders
  EngineStats totals_;
  Request last_request_;
  RequestId last_id_ = 0;
  bool is_draining_ = false, is_over_ = false;
  std::thread thread_;
};

}  // namespace weft
