// TextVectors: the engine's thread and the handler's both come here.
#include "weft/serve/api/text_vectors.h"

#include <mutex>

#include "weft/serve/unit_length.h"

namespace weft::api {
namespace {

class VectorsJob {
 public:
  // weighed: none where vectors are asked for
  VectorsJob(ExchangePointer exchange, Plan plan, std::vector<int32_t> weighed, ReplyOfVectors reply)
      : weighed_(std::move(weighed)),
        exchange_(std::move(exchange)),
        plan_(std::move(plan)),
        reply_(std::move(reply)),
        vectors_(plan_.prompts.size()) {}

  void start(const std::shared_ptr<VectorsJob>& self) {
    std::vector<RequestId> ids;
    for (size_t i = 0; i < plan_.prompts.size(); ++i) {
      Request request;
      request.kind = weighed_.empty() ? Request::Kind::embed : Request::Kind::weigh;
      request.prompt = plan_.prompts[i];
      request.adapter = plan_.adapter;
      if (tells_texts_apart()) request.second_text = plan_.second_texts[i];
      request.pooling = plan_.model->embedding.pooling;
      request.normalises = plan_.model->embedding.normalises && !plan_.model->dense;
      request.weighed = weighed_;
      try {
        ids.push_back(plan_.model->engine->submit(std::move(request), std::make_unique<Sink>(self, i)));
      } catch (...) {
        for (const RequestId id : ids) plan_.model->engine->cancel(id);
        const std::lock_guard lock(mutex_);
        is_over_ = true;
        throw;
      }
    }
    exchange_->when_gone([engine = plan_.model->engine, ids] {
      for (const RequestId id : ids) engine->cancel(id);
    });
  }

 private:
  bool tells_texts_apart() const {
    return !plan_.second_texts.empty() && plan_.model->relevance->around_pair()->tells_apart;
  }

  class Sink : public RequestSink {
   public:
    Sink(std::shared_ptr<VectorsJob> job, size_t index) : job_(std::move(job)), index_(index) {}
    void on_tokens(std::span<const TokenEvent>) override {}
    void on_vector(std::span<const float> vector) override { job_->take(index_, vector); }
    void on_finish(const Finish& finish) override { job_->finish(finish); }

   private:
    const std::shared_ptr<VectorsJob> job_;
    const size_t index_;
  };

  void take(size_t index, std::span<const float> made) {
    std::vector<float>& vector = vectors_[index];
    vector.assign(made.begin(), made.end());
    if (!weighed_.empty() || !plan_.model->dense) return;
    plan_.model->dense->apply(vector);
    if (plan_.model->embedding.normalises) to_unit_length(vector);
  }

  void finish(const Finish& finish) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    const bool is_fine = finish.reason == FinishReason::stop || finish.reason == FinishReason::length;
    is_over_ = !is_fine || ++num_done_ == vectors_.size();
    if (!is_fine) return exchange_->reply(error_reply(to_api_error(finish), Dialect::openai));
    if (!is_over_) return;
    try {
      exchange_->reply(reply_(plan_, vectors_));
    } catch (const ApiError& e) {
      exchange_->reply(error_reply(e, Dialect::openai));
    }
  }

  const std::vector<int32_t> weighed_;
  const ExchangePointer exchange_;
  const Plan plan_;
  const ReplyOfVectors reply_;
  TextVectors vectors_;
  std::mutex mutex_;
  size_t num_done_ = 0;
  bool is_over_ = false;
};

}  // namespace

void answer_by_logits(const ExchangePointer& exchange, Plan plan, std::vector<int32_t> weighed,
                      ReplyOfVectors reply) {
  const auto job = std::make_shared<VectorsJob>(exchange, std::move(plan), std::move(weighed), std::move(reply));
  job->start(job);
}

void answer_by_vectors(const ExchangePointer& exchange, Plan plan, ReplyOfVectors reply) {
  if (const std::string& unknown = plan.model->embedding.unknown; !unknown.empty())
    throw ApiError(400, fmt::format("{}: its vectors are made by {}, which weft does not do; weft serve --pooling "
                                    "says another way",
                                    plan.model->name, unknown));
  const auto job = std::make_shared<VectorsJob>(exchange, std::move(plan), std::vector<int32_t>(), std::move(reply));
  job->start(job);
}

}  // namespace weft::api
