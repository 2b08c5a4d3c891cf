// DeviceQueue: the ordered queue of work on a device other than the CPU, and the ways between its memory and the
// host's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace weft {

// Belongs to one rank. Work is done in the order in which it is queued; what it reads and writes on the host is said
// at each call. Throws Error with the device's words when the device refuses or has failed.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual void* handle() const = 0;  // a cudaStream_t

  virtual void copy_to_device(void* to, const void* from, size_t bytes) = 0;  // `from` may change when it returns
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;    // returns when it is done
  virtual void copy_on_device(void* to, const void* from, size_t bytes) = 0;
  // `rows` times `row_bytes`, each piece a pitch behind the one before.
  virtual void copy_rows_on_device(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                                   size_t rows) = 0;
  virtual void clear(void* to, size_t bytes) = 0;  // zeros

  // Bytes of the host as device memory, 256-byte aligned, for work that is queued before 8 more MiB are uploaded.
  virtual const void* upload(const void* from, size_t bytes) = 0;

  // Called now and then while wait() waits, which what it throws ends.
  void set_watch(std::function<void()> watch) { watch_ = std::move(watch); }
  void look_around() const {
    if (watch_) watch_();
  }

  // Until all that was queued is done; an error of the device shows here at the latest.
  virtual void wait() = 0;

  // Between what was queued before its last set() and what comes after that. Lives no longer than the queue.
  class Point {
   public:
    virtual ~Point() = default;
    virtual void set() = 0;
    virtual void wait() = 0;  // as the queue's, for what is before the point
  };
  virtual std::unique_ptr<Point> make_point() = 0;

  // Between the device and pinned memory of the host, which is left alone until wait(), also of a later point.
  virtual void start_copy_to_device(void* to, const void* pinned, size_t bytes) = 0;
  virtual void start_copy_to_host(void* pinned, const void* from, size_t bytes) = 0;
  // What is queued here from now on begins when all that `other` was given so far is done. Called by other's thread.
  virtual void follow(const DeviceQueue& other) = 0;

  // Between these is a step like others of this key: what is queued may be held back until more of it is known to be
  // the same. Whoever asks for handle() sees all of it queued. Steps do not nest; has_failed: an exception ended it.
  virtual void begin_step(uint64_t key) = 0;
  virtual void end_step(bool has_failed) = 0;

 protected:
  bool is_watched() const { return bool(watch_); }

 private:
  std::function<void()> watch_;
};

}  // namespace weft
