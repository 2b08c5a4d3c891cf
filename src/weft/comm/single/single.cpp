// SingleCommunicator: every collective is the identity; messages go to oneself.
#include "weft/comm/single/single.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/comm/mailbox.h"

namespace weft {
namespace {

// What a group and those split from it share: abort ends them all.
struct SingleJob {
  bool is_aborted = false;
  std::string why;
};

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(std::string_view label, std::shared_ptr<SingleJob> job)
      : Communicator(label), job_(std::move(job)) {}
  ~SingleCommunicator() override { finish(); }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return "single"; }

  std::unique_ptr<Communicator> split(int, int, std::string_view label) override {
    auto group = std::make_unique<SingleCommunicator>(label, job_);
    pass_on_to(*group);
    return group;
  }

  void abort(std::string_view why) noexcept override {
    job_->why = why;
    job_->is_aborted = true;
  }

 private:
  void run(const Collective& call) override {
    if (job_->is_aborted) throw AbortedError("stopped: {}", job_->why);
    if (call.op == CommOp::send) return mailbox_.put(0, call);
    if (call.op == CommOp::recv)
      return mailbox_.take(0, call, true, [&]() -> std::chrono::nanoseconds {
        throw Error("{} (group {}): nothing was sent, and this is the only rank", describe(call), label());
      });
    if (call.bytes && call.out != call.in) std::memmove(call.out, call.in, call.bytes);
  }

  std::shared_ptr<SingleJob> job_;
  Mailbox mailbox_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator(std::string_view label) {
  return std::make_unique<SingleCommunicator>(label, std::make_shared<SingleJob>());
}

}  // namespace weft
