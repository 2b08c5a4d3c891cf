// TrainingState as JSON.
#include "weft/checkpoint/training_state.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {

std::string to_json_text(const TrainingState& state) {
  check(std::isfinite(state.loss_scale), "a loss scale of {} cannot be saved", state.loss_scale);
  nlohmann::ordered_json json;
  json["step"] = state.step;
  json["tokens"] = state.tokens;
  json["seed"] = state.seed;
  json["data_cursor"] = state.data_cursor;
  json["loss_scale"] = state.loss_scale;
  json["loss_scale_good_steps"] = state.loss_scale_good_steps;
  json["config_hash"] = state.config_hash;
  json["world"] = state.world;
  json["extra"] = state.extra;
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

TrainingState parse_training_state(std::string_view text, std::string source) {
  const JsonDocument document = JsonDocument::parse(text, source);
  const JsonView root = document.root();
  TrainingState state;
  state.step = root.at("step").integer(0);
  state.tokens = root.at("tokens").integer(0);
  const JsonView seed = root.at("seed");
  if (!seed.raw().is_number_unsigned()) throw Error("{}: seed must be an integer of at least 0", source);
  state.seed = seed.raw().get<uint64_t>();
  state.data_cursor = root.at("data_cursor").integer(0);
  state.loss_scale = root.at("loss_scale").number();
  state.loss_scale_good_steps = root.at("loss_scale_good_steps").integer(0);
  state.config_hash = root.at("config_hash").string();
  const JsonView world = root.at("world"), extra = root.at("extra");
  for (const std::string& axis : world.keys()) state.world[axis] = world.at(axis).integer(1);
  for (const std::string& key : extra.keys()) state.extra[key] = extra.at(key).string();
  return state;
}

}  // namespace weft
