// SharedMemoryTeam: the collectives of ranks that see each other's memory, be they threads or processes.
#pragma once
#include <optional>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/rank_progress.h"
#include "weft/comm/shared/board.h"
#include "weft/comm/watch.h"

namespace weft {

// What a team needs to know of its transport.
class TeamHost {
 public:
  virtual Location locate(const std::byte* data, size_t bytes) const = 0;
  virtual std::byte* resolve(int rank, Location location) const = 0;  // valid on this rank
  virtual const RankProgress* progress_of(int rank) const = 0;        // null: not known
  virtual Watch watch() const = 0;                                    // of a wait that begins now
  // Throws AbortedError when this rank should stop waiting.
  virtual void check_alive() const = 0;
  // Called before a wait goes to sleep; returns for how long it may.
  virtual std::chrono::nanoseconds before_sleep() = 0;

 protected:
  ~TeamHost() = default;
};

// One rank's part. A collective is: post what is called, wait for all, compare the posts, move or reduce data
// straight between the ranks' tensors, wait again. Small ones travel with the post and need no second wait.
class SharedMemoryTeam {
 public:
  // `label` names the group in messages. `spins`: whether there is a core for every rank.
  SharedMemoryTeam(Board board, int rank, std::string_view label, bool spins, TeamHost& host);
  void run(const Collective& call);
  void leave();  // whoever still waits for this rank fails at once

 private:
  int parity() const { return int(round_ % 2); }
  Board::Seat& mine() const { return board_.seat(rank_); }
  const Post& post_by(int rank) const { return board_.seat(rank).posts[parity()]; }
  void run_together(const Collective& call);
  void post(const Collective& call);
  bool travels_in_board(const Collective& call) const;
  bool all_visible(const Collective& call) const;

  // Counts this rank in; returns which generation to wait for, or nothing when it was the last and has woken the
  // others.
  std::optional<uint64_t> arrive();
  // Waits for every rank. Until the last one arrives a rank may leave by an exception: nobody touches its tensors.
  void meet(const Collective& call);
  // The second wait, when tensors are in use by others: ends early only when one of them has stopped for good.
  void part(const Collective& call);
  bool withdraw(uint64_t generation);
  void wait_for_all(uint64_t generation, FunctionRef<std::chrono::nanoseconds()> before_sleep);
  [[noreturn]] void fail_missing(const Collective& call, double waited_s) const;
  [[noreturn]] void fail_parting(const Collective& call, double waited_s) const;
  [[noreturn]] void fail_stopped(const Collective& call, double waited_s,
                                 FunctionRef<bool(int rank)> has_stopped) const;

  void run_in_board(const Collective& call);
  void run_directly(const Collective& call);
  void all_reduce_in_place(const Collective& call);
  void exchange_rows(const Collective& call);
  void run_staged(const Collective& call);
  void stage_flat(const Collective& call);
  void stage_parts(const Collective& call);
  void reduce_ins(const Collective& call, std::byte* out, size_t bytes) const;  // what ins_ point to, into `out`
  size_t bytes_between(int from, int to) const;                                 // of an all_to_all

  Board board_;
  int rank_, size_;
  std::string label_;
  bool spins_;
  TeamHost& host_;
  uint64_t round_ = 0, meetings_ = 0;
  bool is_broken_ = false;
  std::vector<const std::byte*> ins_;  // one per rank
  std::vector<std::byte*> outs_;       // likewise
};

}  // namespace weft
