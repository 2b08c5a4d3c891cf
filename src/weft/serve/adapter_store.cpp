// AdapterStore: what one rank cannot load no rank has.
#include "weft/serve/adapter_store.h"

namespace weft {

std::string AdapterStore::load(Communicator& world, Context& context, int32_t id, const std::string& folder) {
  std::string error;
  std::unique_ptr<LoraSet> set;
  try {
    set = load_(folder);
  } catch (const Error& e) {
    error = e.what();
  }
  const Tensor failures = context.stream.host_memory().empty(DType::f32, {1});
  *failures.data<float>() = error.empty() ? 0 : 1;
  world.all_reduce(failures);
  if (*failures.data<float>() == 0) {
    sets_[id] = std::move(set);
    return {};
  }
  return error.empty() ? fmt::format("{}: another rank could not read it", folder) : error;
}

const LoraSet* AdapterStore::find(int32_t id) const {
  if (id == 0) return nullptr;
  const auto found = sets_.find(id);
  check(found != sets_.end(), "there is no adapter with the number {}", id);
  return found->second.get();
}

}  // namespace weft
