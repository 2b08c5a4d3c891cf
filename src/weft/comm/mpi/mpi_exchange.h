// MpiExchange: the collectives of processes that share no memory, made of MPI's messages.
#pragma once
#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/shared/post.h"
#include "weft/comm/watch.h"

namespace weft {

// Waiting for MPI by polling it, so that a wait can end without MPI's consent.
class MpiWait {
 public:
  // `what` names a call, `whereabouts` the ranks that it waits for, or nothing: "; rank 1 was last seen in ...".
  MpiWait(std::function<Watch()> watch, std::function<void()> check_alive, std::function<void()> make_progress,
          std::function<std::string(const Collective&)> what,
          std::function<std::string(const Collective&)> whereabouts);

  // Returns when is_done() holds; throws Error "all_reduce of ... (group dp): `complaint` within 30 s".
  void until(const Collective& call, FunctionRef<std::string()> complaint, FunctionRef<bool()> is_done) const;

 private:
  std::function<Watch()> watch_;
  std::function<void()> check_alive_, make_progress_;
  std::function<std::string(const Collective&)> what_, whereabouts_;
};

// Floating sums are in rank order: each rank reduces its part of what all sent it, then all gather the parts.
class MpiExchange {
 public:
  MpiExchange(MPI_Comm comm, std::string_view label, const MpiWait& wait);  // collective over `comm`
  void run(const Collective& call);

 private:
  // A range of bytes for each rank.
  using In = FunctionRef<std::span<const std::byte>(int rank)>;
  using Out = FunctionRef<std::span<std::byte>(int rank)>;

  void compare(const Collective& call);
  void move(const Collective& call);
  void wait_for_requests(const Collective& call);
  std::string missing();
  void exchange(const Collective& call, Out receive, In send);  // everybody with everybody
  void all_reduce(const Collective& call);
  void reduce_scatter(const Collective& call);
  void reduce_part(const Collective& call, std::span<std::byte> out, In in);
  void all_to_all(const Collective& call);
  std::byte* scratch(size_t bytes);

  MPI_Comm comm_;  // apart from that of messages
  std::string label_;
  const MpiWait& wait_;
  int rank_ = 0, size_ = 1;
  bool is_broken_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<int> senders_;  // of the first requests, which receive
  std::vector<Post> posts_;
  std::vector<int64_t> counts_;  // of an all_to_all: out and in, of each rank
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> ins_;
};

}  // namespace weft
