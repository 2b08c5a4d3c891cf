// TraceCommunicator: the bookkeeping of a communicator without the other ranks.
#include "weft/comm/trace/trace.h"

#include "weft/base/error.h"

namespace weft {
namespace {

class TraceCommunicator final : public Communicator {
 public:
  TraceCommunicator(int rank, int size, std::string_view label) : Communicator(label), rank_(rank), size_(size) {}
  ~TraceCommunicator() override { finish(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "trace"; }

  std::unique_ptr<Communicator> split(int, int, std::string_view label) override {
    throw Error("group {}: a traced world has no other ranks to ask; give the color of every rank", label);
  }
  std::unique_ptr<Communicator> split_by(FunctionRef<int(int)> color_of, std::string_view label) override {
    int size = 0, rank = 0;
    for (int r = 0; r < size_; ++r) {
      if (color_of(r) != color_of(rank_)) continue;
      rank += r < rank_;
      ++size;
    }
    auto group = std::make_unique<TraceCommunicator>(rank, size, label);
    pass_on_to(*group);
    return group;
  }
  void abort(std::string_view) noexcept override {}

 private:
  void run(const Collective&) override {}
  bool has_thread() const override { return false; }

  int rank_, size_;
};

}  // namespace

std::unique_ptr<Communicator> make_trace_communicator(int rank, int size, std::string_view label) {
  check(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  return std::make_unique<TraceCommunicator>(rank, size, label);
}

}  // namespace weft
