// agree_on_split: gathers (color, key) of every rank.
#include "weft/comm/split.h"

#include <algorithm>
#include <set>

namespace weft {

SplitPlace agree_on_split(const Communicator& communicator, int color, int key,
                          FunctionRef<void(const Collective&)> collective) {
  struct Choice {
    int color, key;
  };
  const Choice mine{color, key};
  std::vector<Choice> choices(size_t(communicator.size()));
  Collective call;
  call.op = CommOp::split, call.bytes = sizeof mine;
  call.in = reinterpret_cast<const std::byte*>(&mine), call.out = reinterpret_cast<std::byte*>(choices.data());
  collective(call);

  SplitPlace place;
  std::set<int> smaller_colors;
  for (int r = 0; r < communicator.size(); ++r) {
    if (choices[size_t(r)].color == color) place.members.push_back(r);
    if (choices[size_t(r)].color < color) smaller_colors.insert(choices[size_t(r)].color);
  }
  std::ranges::stable_sort(place.members, {}, [&](int r) { return choices[size_t(r)].key; });
  place.rank = int(std::ranges::find(place.members, communicator.rank()) - place.members.begin());
  place.color_index = int(smaller_colors.size());
  return place;
}

}  // namespace weft
