// Loop: the variable `loop` inside a {% for %}.
#pragma once
#include "weft/text/jinja/library.h"

namespace weft::jinja {

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(std::vector<Value> items) : items_(std::move(items)) {}

  bool is_done() const { return index_ >= items_.size(); }
  const Value& current() const { return items_[index_]; }
  void advance() { ++index_; }

  std::string describe() const override { return "a loop"; }
  std::optional<Value> attribute(std::string_view name) override;

  // Empties a loop when it ends: its values may refer to it.
  struct Ending {
    Loop& loop;
    ~Ending() { loop.items_.clear(), loop.seen_.clear(); }
  };

 private:
  Value item_or_undefined(size_t index, std::string_view name) const;
  bool has_changed(Runtime& runtime, const Arguments& arguments);

  std::vector<Value> items_;
  size_t index_ = 0;
  std::vector<Value> seen_;  // by changed()
  bool has_seen_ = false;
};

}  // namespace weft::jinja
