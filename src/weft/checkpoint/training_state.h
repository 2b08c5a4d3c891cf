// TrainingState: all a run must know, besides tensors, to go on as if it had never stopped.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace weft {

struct TrainingState {
  int64_t step = 0;                          // optimizer steps done
  int64_t tokens = 0;                        // seen by all ranks together
  uint64_t seed = 0;                         // of initial values, dropout and the order of the data
  int64_t data_cursor = 0;                   // samples taken from the order that `seed` fixes
  double loss_scale = 0;                     // of fp16; 0: the run has none
  int64_t loss_scale_good_steps = 0;         // since the scale last changed
  std::string config_hash;                   // of the resolved recipe: says whether a run continues the same one
  std::map<std::string, int64_t> world;      // mesh axis to size when saved, for messages: any mesh can load
  std::map<std::string, std::string> extra;  // whatever else its owner needs
  bool operator==(const TrainingState&) const = default;
};

std::string to_json_text(const TrainingState& state);
TrainingState parse_training_state(std::string_view text, std::string source);

}  // namespace weft
