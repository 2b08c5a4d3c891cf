// WatchedSink: hands everything on, and says when it is over.
#pragma once
#include <functional>
#include <memory>

#include "weft/serve/request.h"

namespace weft {

class WatchedSink : public RequestSink {
 public:
  // over: called once, behind on_finish, by the thread that calls that; ending, where there is one, before it.
  WatchedSink(std::shared_ptr<RequestSink> sink, std::function<void()> over, std::function<void()> ending = {})
      : sink_(std::move(sink)), over_(std::move(over)), ending_(std::move(ending)) {}

  void on_prompt(std::span<const TokenLogProbs> prompt) override { sink_->on_prompt(prompt); }
  void on_tokens(std::span<const TokenEvent> tokens) override { sink_->on_tokens(tokens); }
  void on_vector(std::span<const float> vector) override { sink_->on_vector(vector); }
  void on_finish(const Finish& finish) override {
    if (ending_) ending_();
    sink_->on_finish(finish);
    over_();
  }

 private:
  const std::shared_ptr<RequestSink> sink_;
  const std::function<void()> over_, ending_;
};

}  // namespace weft
