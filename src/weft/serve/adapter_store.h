// AdapterStore: the adapters that one rank has beside the served model, by number.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/nn/lora_set.h"

namespace weft {

// Reads this rank's part of the adapter in a folder; throws Error for what is wrong with it.
using AdapterLoader = std::function<std::unique_ptr<LoraSet>(const std::string& folder)>;

class AdapterStore {
 public:
  // Without a loader there are never any.
  explicit AdapterStore(AdapterLoader load = {}) : load_(std::move(load)) {}
  bool takes_any() const { return bool(load_); }

  // On all ranks of the world together: all have the adapter then, or none has. What was wrong here, or that another
  // rank failed; empty when it is there.
  std::string load(Communicator& world, Context& context, int32_t id, const std::string& folder);
  void drop(int32_t id) { sets_.erase(id); }
  const LoraSet* find(int32_t id) const;  // null: of number 0, the model itself

 private:
  AdapterLoader load_;
  std::map<int32_t, std::unique_ptr<LoraSet>> sets_;
};

}  // namespace weft
