// ReplicaServer: messages become calls of the engine, and what its sinks hear becomes messages.
#include "weft/serve/remote/replica_server.h"

#include <algorithm>
#include <chrono>

namespace weft::remote {
namespace {

constexpr int64_t kMostPatienceMs = 86'400'000;

ScoredToken copy_of(const TokenLogProbs& p) {
  return {.token = p.token, .rank = p.rank, .top = {p.top.begin(), p.top.end()}};
}

// What the API checks where a request comes from a client, and an engine relies on.
void check_fields(const Request& r, int64_t vocab) {
  const auto check_tokens = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens)
      if (token < 0 || token >= vocab) throw UsageError("{} is no token of this model", token);
  };
  check_sampling(r.sampling);
  check_tokens(r.stop_tokens);
  check_tokens(r.sampling.allowed_tokens);
  for (const std::vector<int32_t>& word : r.bad_words) {
    if (word.empty()) throw UsageError("bad_words: a sequence without tokens");
    check_tokens(word);
  }
  for (const auto& [token, bias] : r.sampling.logit_bias) check_tokens({&token, 1});
  for (const std::optional<int32_t>& count : {r.logprobs, r.prompt_logprobs})
    if (count && (*count < 0 || *count > vocab)) throw UsageError("{} alternatives of {} tokens", *count, vocab);
  if (r.max_tokens < 0 || r.min_tokens < 0)
    throw UsageError("{} to {} tokens are asked for", r.min_tokens, r.max_tokens);
}

}  // namespace

struct ReplicaServer::Shared {
  explicit Shared(Channel& its_channel) : channel(&its_channel) {}
  void send(const FromReplica& message) {
    const std::vector<std::byte> bytes = encode(message);
    const std::lock_guard lock(mutex);
    if (channel) channel->send(bytes);
  }

  std::mutex mutex;                     // the engine is not called under it
  Channel* channel;                     // null: the server is gone
  std::map<RequestId, RequestId> open;  // what the engine calls a request, by what the other end calls it; 0: not yet
};

class ReplicaServer::Sink : public RequestSink {
 public:
  Sink(std::shared_ptr<Shared> shared, RequestId id) : shared_(std::move(shared)), id_(id) {}

  void on_prompt(std::span<const TokenLogProbs> prompt) override {
    PromptScored message{.id = id_, .tokens = {}};
    for (const TokenLogProbs& one : prompt) message.tokens.push_back(copy_of(one));
    shared_->send(std::move(message));
  }
  void on_tokens(std::span<const TokenEvent> tokens) override {
    TokensCame message{.id = id_, .tokens = {}};
    for (const TokenEvent& one : tokens) message.tokens.push_back({one.token, copy_of(one.log_probs)});
    shared_->send(std::move(message));
  }
  void on_vector(std::span<const float> vector) override {
    shared_->send(Embedded{id_, {vector.begin(), vector.end()}});
  }
  void on_finish(const Finish& finish) override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->open.erase(id_);
    }
    shared_->send(Finished{id_, finish});
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const RequestId id_;
};

ReplicaServer::ReplicaServer(Socket socket, Engine& engine, api::ConstraintFactory* constraints,
                             std::function<void()> on_stop)
    : engine_(engine),
      channel_(std::move(socket), [&engine] { return encode(StatsCame{engine.stats()}); }),
      shared_(std::make_shared<Shared>(channel_)),
      constraints_(constraints),
      on_stop_(std::move(on_stop)) {
  shared_->send(Hello{engine.limits(), engine.adapters()});
  listener_ = std::thread([this] { listen(); });
}

ReplicaServer::~ReplicaServer() {
  channel_.cut();
  listener_.join();
  drains_.clear();  // waits for them
  const std::lock_guard lock(shared_->mutex);
  shared_->channel = nullptr;
}

void ReplicaServer::tell_failure(const std::string& error) {
  shared_->send(Ended{error});
  channel_.finish();
}

void ReplicaServer::finish() {
  when_stopped_.get();
  channel_.finish();
}

void ReplicaServer::listen() {
  std::string gone = "its process is gone";
  try {
    std::vector<std::byte> bytes;
    while (!is_told_to_stop_ && channel_.receive(bytes)) {
      ToReplica message = decode_to_replica(bytes);
      std::visit([&](auto& one) { take(one); }, message);
    }
  } catch (const std::exception& e) {
    gone = e.what();
  }
  cancel_all();
  on_stop_();
  if (is_told_to_stop_) return stopped_.set_value();
  stopped_.set_exception(std::make_exception_ptr(Error("the replica that listens is gone: {}", gone)));
}

void ReplicaServer::cancel_all() {
  std::vector<RequestId> all;
  {
    const std::lock_guard lock(shared_->mutex);
    for (const auto& [id, sent_as] : shared_->open) all.push_back(sent_as);
  }
  for (const RequestId id : all) engine_.cancel(id);
}

void ReplicaServer::take(Submit& message) {
  const RequestId id = message.id;
  Finish refusal{.reason = FinishReason::error};
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->open.try_emplace(id, 0).second) throw Error("it has two requests of one number");
  }
  try {
    check_fields(message.request, engine_.limits().vocab);
    if (message.form) {
      if (!constraints_) throw Unsupported("output of a given form is not offered");
      message.request.constraint = constraints_->make(*message.form);
    }
    const RequestId sent_as = engine_.submit(std::move(message.request), std::make_unique<Sink>(shared_, id));
    const std::lock_guard lock(shared_->mutex);
    if (const auto found = shared_->open.find(id); found != shared_->open.end()) found->second = sent_as;
    return;
  } catch (const Busy& e) {
    refusal.error = e.what(), refusal.retry_after_s = e.retry_after_s();
  } catch (const Error& e) {
    refusal.error = e.what(), refusal.is_refusal = dynamic_cast<const UsageError*>(&e) != nullptr;
  }
  Sink(shared_, id).on_finish(refusal);
}

void ReplicaServer::take(Cancel& message) {
  RequestId sent_as = 0;
  {
    const std::lock_guard lock(shared_->mutex);
    const auto found = shared_->open.find(message.id);
    if (found == shared_->open.end()) return;
    sent_as = found->second;
  }
  engine_.cancel(sent_as);
}

void ReplicaServer::take(LoadAdapter& message) {
  const auto told = [&engine = engine_, shared = shared_, number = message.number](const std::string& error) {
    shared->send(AdapterLoaded{number, error, engine.adapters()});
  };
  try {
    engine_.load_adapter(message.name, message.folder, told);
  } catch (const Error& e) {
    told(e.what());
  }
}

void ReplicaServer::take(UnloadAdapter& message) { engine_.unload_adapter(message.name); }

void ReplicaServer::take(Drain& message) {
  const std::chrono::milliseconds patience(std::clamp<int64_t>(message.patience_ms, 0, kMostPatienceMs));
  drains_.push_back(std::async(std::launch::async, [this, patience] { engine_.drain(patience); }));
}

}  // namespace weft::remote
