// Route: which experts the tokens of a pass go to, and how their rows travel. Data on the host in reused storage.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "weft/autograd/ops/dropout.h"
#include "weft/autograd/placement.h"
#include "weft/base/unset_array.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/late_copy.h"

namespace weft {

class Route {
 public:
  // T tokens, k choices each. rows: the token spans of a pass and the tokens of a row of the batch; without either,
  // all tokens are one row.
  void begin(int64_t num_tokens, int64_t k, int64_t num_experts, std::span<const TokenSpan> spans, int64_t seq_len);
  int32_t* experts() { return experts_.data(); }  // [T, k], to be written after begin()
  const int32_t* experts() const { return experts_.data(); }

  // With a capacity factor an expert takes at most factor * k / E of a row's tokens, rounded up, the first ones; the
  // other copies go nowhere. Source: Lepikhin et al., "GShard", 2021, by row of the batch, so that it is the same on
  // any mesh. group: those who hold other tokens of the same rows, or null. A collective call.
  void drop_beyond(Context& context, double capacity_factor, Communicator* group);
  // Gives every copy that was not dropped a row, ordered by expert and then by token.
  void assign();
  // The same without data, where nobody chose: each expert gets its share.
  void assign_evenly();
  // In place of experts() and of all that follows, for a rank that has all experts: the device keeps the choice,
  // [T, k] i32. Rows are as assign() would order them; or, of few tokens, as tokens follow each other.
  void order_on_device(Context& context, Tensor chosen);
  // After order_on_device(), where a backward pass comes: the host gets the choice while the device goes on.
  // settle(), before anything else of that pass: it has it, and has ordered rows as they lie.
  void fetch(Context& context) { late_.start(context.stream, chosen_); }
  void settle(Context& context);
  void keep_on_device(Tensor chosen);
  bool is_on_device() const { return bool(chosen_); }
  const Tensor& chosen() const { return chosen_; }  // of rows in the order of tokens
  const Tensor& runs() const { return runs_; }      // of rows in the order of experts
  // Tells the ranks of the group, which hold an even cut of the experts each, how many rows come. A collective call.
  void exchange(Context& context, Communicator* group);

  // of_rows[row] = of_tokens[its token], of the rows of this rank's experts. A collective call.
  void carry(Context& context, Communicator* group, std::span<const int32_t> of_tokens,
             std::vector<int32_t>& of_rows) const;

  int64_t num_experts() const { return num_experts_; }
  int64_t num_tokens() const { return int64_t(rows_.size()); }
  int64_t num_rows() const { return num_rows_; }        // of the batch
  const int32_t* rows() const { return rows_.data(); }  // [T]: of each token, from 0
  // Among the rows that leave this rank.
  RowCopies copies() const;
  // Of the rows that leave this rank.
  int64_t num_leaving() const { return int64_t(tokens_.size()); }
  TableRows tokens() const;
  std::span<const int64_t> sent() const { return sent_; }          // rows for each rank of the group
  std::span<const int64_t> received() const { return received_; }  // rows from each
  // Of the rows of this rank's experts, ordered by expert and then by sender: where expert e begins, [experts here +
  // 1]; the received row that each of them is; and the inverse of that.
  std::span<const int64_t> starts() const { return starts_; }
  std::span<const int32_t> arrived() const { return arrived_; }
  std::span<const int32_t> places() const { return places_; }
  int64_t num_here() const { return starts_.back(); }
  // Adds how often each expert was chosen, whether or not there was room, to counts[E]; after assign().
  void add_choices(std::span<int64_t> counts) const;
  // Calls visit(row of the batch, expert) for every choice, whether or not there was room.
  template <class Visit>
  void each_choice(Visit&& visit) const {
    for (size_t i = 0; i < experts_.size(); ++i) visit(rows_[i / size_t(k_)], experts_[i]);
  }

 private:
  friend class RouteRef;
  // Tokens of one row that follow each other.
  struct Span {
    int64_t begin, count, row, first_token;
  };
  void leave_device() { chosen_ = at_ = ordered_tokens_ = runs_ = {}; }
  void count_choices(const Span& span, int64_t* counts) const;  // adds to counts[E]
  void order_by_expert(std::span<const int64_t> counts, bool has_data);

  int users_ = 0;
  int64_t k_ = 0, num_experts_ = 0, num_rows_ = 0;
  bool drops_ = false;  // copies_ tells which copies have no room: -1
  UnsetArray<int32_t> experts_, copies_, tokens_, rows_, arrived_, places_;
  std::vector<Span> spans_;
  std::vector<int64_t> counts_, taken_, row_tokens_, sent_, received_, starts_, next_;
  LateCopy late_;
  Tensor chosen_, at_, ordered_tokens_, runs_;  // on the device
};

// A handle: the route is free for another pass when the last one goes. Of one thread.
class RouteRef {
 public:
  explicit RouteRef(Route& route) : route_(&route) { ++route_->users_; }
  RouteRef(const RouteRef& other) : RouteRef(*other.route_) {}
  RouteRef(RouteRef&& other) noexcept : route_(std::exchange(other.route_, nullptr)) {}
  RouteRef& operator=(const RouteRef&) = delete;
  ~RouteRef() {
    if (route_ && --route_->users_ == 0) route_->leave_device();
  }
  Route& operator*() const { return *route_; }
  Route* operator->() const { return route_; }

  // One that nobody uses.
  static RouteRef take(std::vector<std::unique_ptr<Route>>& pool) {
    for (const auto& r : pool)
      if (r->users_ == 0) return RouteRef(*r);
    return RouteRef(*pool.emplace_back(std::make_unique<Route>()));
  }

 private:
  Route* route_;
};

}  // namespace weft
