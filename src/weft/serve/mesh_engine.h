// MeshEngine: an engine whose steps the ranks of a mesh compute, on one thread each; what other threads ask of it
// waits until the driver's takes it.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>

#include "weft/comm/communicator.h"
#include "weft/serve/sequence.h"

namespace weft {

class MeshEngine : public Engine {
 public:
  ~MeshEngine() override;

  // Serves until stop(), on the thread that the model belongs to, on every rank. Throws why it failed, when all
  // requests were told.
  void run();

  // All that follows is for the driver; on the others nothing is asked.
  virtual bool is_driver() const = 0;
  void stop();

  const EngineLimits& limits() const override { return limits_; }
  RequestId submit(Request request, std::unique_ptr<RequestSink> sink) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  void drain(std::chrono::milliseconds patience) override;

 protected:
  using Clock = Sequence::Clock;
  using SequencePtr = std::unique_ptr<Sequence>;

  // What came since it was last asked.
  struct News {
    std::vector<SequencePtr> arrived;  // in this order
    std::vector<RequestId> cancelled;  // perhaps finished by now
    bool cancels_all = false;          // of those that arrived before
  };
  // Waits until there is something to do, of a mesh that lives; nothing when that is to stop.
  std::optional<News> take(bool has_work, Communicator& world);
  // With the lock: what else take() waits for.
  virtual bool has_other_news() const { return false; }
  // With the lock. Throws UsageError where there is none of that name.
  virtual int32_t adapter_number(const std::string& name) const;

  static void reject(std::vector<SequencePtr> sequences, FinishReason reason, const std::string& error);
  void finished(size_t count);  // so many were told how they finished
  void publish(const EngineStats& stats);
  void check_open() const;  // with the lock; throws Busy where nothing more is taken
  // Of an engine that ends, for `error` where that is a mistake: nothing more is taken, and what waits is told.
  void close(FinishReason reason, const std::string& error);
  // What a request is told that finishes now.
  static Finish finish_now(const Sequence& s, Finish finish);

  EngineLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SequencePtr> incoming_;

  // Of an engine that ends: what close() says, and the same of all that was taken.
  virtual void end_all(FinishReason reason, const std::string& error) = 0;

 private:
  // Waits for news and takes them; false when the engine is to stop.
  virtual bool take_requests() = 0;
  virtual void step() = 0;
  // On the other ranks: computes what the driver's steps say, until stop_others().
  virtual void follow() = 0;
  virtual void stop_others() = 0;

  void check_request(const Request& request) const;

  static constexpr double kSoon = 1;  // seconds in which to ask again
  std::vector<RequestId> cancelled_;
  RequestId last_id_ = 0;
  size_t num_open_ = 0;  // submitted and not told how they finished
  bool is_draining_ = false, is_stopped_ = false, cancels_all_ = false;
  std::string failure_;  // why it has ended, where that was a mistake
  EngineStats stats_;    // as of the last step; `waiting` without those that are incoming
};

}  // namespace weft
