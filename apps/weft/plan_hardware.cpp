// plan --show-hardware and --measure: the file as it is, and its figures.
#include "plan_hardware.h"

#include "weft/base/file.h"
#include "weft/base/units.h"
#include "weft/plan/measure_machine.h"

namespace weft::app {
namespace {

using plan::Hardware;

nlohmann::json link_json(const plan::Link& link) {
  return {{"gb_s", link.bytes_per_s / 1e9},
          {"reached", link.reached},
          {"latency_us", link.latency_s * 1e6},
          {"half_mib", link.half_bytes / kMebi}};
}

// Keys and units are those of the file; `toml` is the file.
nlohmann::json hardware_json(const Hardware& h, std::string_view toml) {
  nlohmann::json json = {{"name", h.name},
                         {"description", h.description},
                         {"memory",
                          {{"gib", gib(h.memory_bytes)},
                           {"reserved_gib", gib(h.reserved_bytes)},
                           {"gb_s", h.memory_bytes_per_s / 1e9},
                           {"reached", h.memory_reached}}},
                         {"device", {{"cores", h.cores}, {"launch_us", h.launch_s * 1e6}}},
                         {"matmul", {{"sustained", h.sustained}, {"half_depth", h.half_depth}}},
                         {"attention", {{"forward", h.attention_forward}, {"backward", h.attention_backward}}},
                         {"node", link_json(h.node)},
                         {"network", link_json(h.network)},
                         {"toml", toml}};
  json["matmul"]["tile"] = {h.tile_m, h.tile_n};
  for (int i = 0; i < plan::kNumMatmulTypes; ++i)
    if (h.peak_flops[size_t(i)] > 0)
      json["matmul"][std::string(name_of(plan::MatmulType(i)))] = {h.peak_flops[size_t(i)] / 1e12,
                                                                   h.reached[size_t(i)]};
  json["node"]["devices"] = h.devices_per_node;
  if (h.host_bytes > 0) json["node"]["host_gib"] = gib(h.host_bytes);
  return json;
}

}  // namespace

void show_hardware(const std::string& name, const Output& output) {
  const std::string text(plan::hardware_text(name));
  output.json(hardware_json(plan::find_hardware(name), text));
  if (!output.is_json()) output.text(text);
}

void measure_hardware(const std::string& file, const Output& output) {
  const auto progress = [](const std::string& what) { fmt::print(stderr, "measuring {}\n", what); };
  const Hardware machine = plan::measure_machine({.progress = progress});
  const std::string text = hardware_toml(machine);
  output.json(hardware_json(machine, text));
  if (file.empty()) {
    if (!output.is_json()) output.text(text);
    return;
  }
  write_file_atomically(FileSystem::real(), file, text);
  output.text(fmt::format("{} is written: weft plan MODEL --cluster 2x{}", file, file));
}

}  // namespace weft::app
