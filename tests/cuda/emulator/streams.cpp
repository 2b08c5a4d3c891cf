// The emulator's streams, events and graphs. Work is done as late as a card could do it, when somebody waits for it,
// so that what is read or written over too early shows; with WEFT_EMULATED_AT_ONCE when it is queued, to see who did.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "arena.h"
#include "cuda_runtime.h"

using emulated::Arena;
using Work = std::function<void()>;

struct EmulatedGraph {
  std::vector<Work> work;
};

struct EmulatedStream {
  EmulatedStream();
  ~EmulatedStream();

  std::unique_ptr<EmulatedGraph> capture;  // while it captures
  bool is_invalid = false;

  void add(Work work) {
    if (!is_late_) return work();
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(work));
  }
  // In order, until is_done() or nothing is left. Whether anything was. Whoever runs two streams that wait for each
  // other may hold what this one waits for, and do it meanwhile: nobody is waited for when it is done.
  template <class IsDone>
  bool run_until(IsDone&& is_done) {
    std::unique_lock lock(running_, std::defer_lock);
    while (!lock.try_lock()) {
      if (is_done()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    bool has_run = false;
    for (; !is_done(); has_run = true) {
      Work next;
      {
        const std::lock_guard pending(mutex_);
        if (pending_.empty()) break;
        next = std::move(pending_.front());
        pending_.pop_front();
      }
      next();
    }
    return has_run;
  }

 private:
  const bool is_late_ = std::getenv("WEFT_EMULATED_AT_ONCE") == nullptr;
  std::mutex running_, mutex_;  // whoever runs work; what is pending
  std::deque<Work> pending_;
};

namespace {

thread_local EmulatedStream* capturing = nullptr;
std::atomic<int64_t> waits{0};

// Made by this thread.
std::vector<EmulatedStream*>& streams_here() {
  static thread_local std::vector<EmulatedStream*> streams;
  return streams;
}

}  // namespace

EmulatedStream::EmulatedStream() { streams_here().push_back(this); }
EmulatedStream::~EmulatedStream() {
  run_until([] { return false; });
  std::erase(streams_here(), this);
}

void emulated::finish(cudaStream_t stream) {
  if (stream) waits += stream->run_until([] { return false; });
}
int64_t emulated::num_waits() { return waits; }
void emulated::finish_streams() {
  for (EmulatedStream* const stream : streams_here()) finish(stream);
}
cudaError_t emulated::refuse_in_capture() {
  if (!capturing) return cudaSuccess;
  capturing->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t emulated::queue(cudaStream_t stream, Work work) {
  if (!stream) return work(), cudaSuccess;
  if (!stream->capture) return stream->add(std::move(work)), cudaSuccess;
  if (stream->is_invalid) return cudaErrorStreamCaptureInvalidated;
  stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new EmulatedStream, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream && stream->capture) return emulated::refuse_in_capture();
  return emulated::finish(stream), cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream || capturing) return cudaErrorStreamCaptureUnsupported;
  capturing = stream;
  stream->capture = std::make_unique<EmulatedGraph>(), stream->is_invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream || capturing != stream) return cudaErrorStreamCaptureUnsupported;
  capturing = nullptr;
  const std::unique_ptr<EmulatedGraph> captured = std::move(stream->capture);
  if (stream->is_invalid) return cudaErrorStreamCaptureInvalidated;
  *graph = new EmulatedGraph(std::move(*captured));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  const char* const asked = std::getenv("WEFT_EMULATED_NO_GRAPHS");
  if (asked && std::string_view(asked) != "launch") return cudaErrorMemoryAllocation;
  *ready = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const char* const asked = std::getenv("WEFT_EMULATED_NO_GRAPHS");
  if (asked && std::string_view(asked) == "launch") return cudaErrorMemoryAllocation;
  for (const Work& work : graph->work) emulated::queue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, cudaSuccess; }

struct EmulatedEvent {
  // What streams know of it, also when it is no more.
  struct State {
    std::atomic<int64_t> num_done{0};
    std::atomic<int64_t> ns{-1};  // when it was done last, which is when all before it was
  };
  unsigned flags;
  std::shared_ptr<State> state = std::make_shared<State>();
  std::atomic<int64_t> num_recorded{0};
  std::atomic<EmulatedStream*> stream{nullptr};  // in which it was recorded last

  // Does what has to be done for its last record to be.
  std::function<bool()> wait() const {
    return [state = state, count = num_recorded.load(), in = stream.load()] {
      const auto is_done = [&] { return state->num_done >= count; };
      return !is_done() && in->run_until(is_done);
    };
  }
};
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return *event = new EmulatedEvent{flags}, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ++event->num_recorded, event->stream = stream;
  return emulated::queue(stream, [state = event->state] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    state->ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    ++state->num_done;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return emulated::queue(stream, event->wait());
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  for (const EmulatedEvent* event : {begin, end}) {
    event->wait()();
    if (event->state->ns < 0 || (event->flags & cudaEventDisableTiming)) return cudaErrorInvalidResourceHandle;
  }
  *ms = float(double(end->state->ns - begin->state->ns) * 1e-6);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return waits += event->wait()(), cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

// Memory of the host that is not pinned is read at once, and written when all before it is done.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool is_to_host = kind == cudaMemcpyDeviceToHost, is_from_host = kind == cudaMemcpyHostToDevice;
  const auto copy = [=](const void* source) {
    const Arena::Open open(Arena::instance());
    if (bytes) std::memmove(to, source, bytes);
  };
  const bool is_staged = (is_to_host || is_from_host) && !emulated::count_copy(is_to_host ? to : from, bytes);
  if (is_staged && is_from_host) {
    const auto* const begin = static_cast<const char*>(from);
    return emulated::queue(stream, [copy, held = std::vector<char>(begin, begin + bytes)] { copy(held.data()); });
  }
  const cudaError_t status = emulated::queue(stream, [=] { copy(from); });
  if (is_staged && !(stream && stream->capture)) emulated::finish(stream);
  return status;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
                    kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return emulated::queue(stream, [=] {
    const Arena::Open open(Arena::instance());
    std::memset(p, value, bytes);
  });
}
