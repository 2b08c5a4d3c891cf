// Mesh options: what a command line says of the mesh, as keys of a recipe.
#pragma once
#include <string>

#include "command.h"
#include "weft/base/error.h"
#include "weft/base/toml.h"

namespace weft::app {

struct MeshOptions {
  std::string zero, hsdp, schedule, virtual_stages, cp_mode, recompute, device, timeout;
  bool sequence_parallel = false;

  void add_to(CLI::App& command) {
    command.add_option("--zero", zero, "Sharded data parallelism: 0 to 3");
    command.add_option("--hsdp", hsdp, "Hybrid sharding: how many ranks hold each shard");
    command.add_option("--schedule", schedule, "Of a pipeline: gpipe, 1f1b, interleaved, zb-h1, zbv or dualpipe-v");
    command.add_option("--virtual-stages", virtual_stages, "Stages a rank of a pipeline");
    command.add_flag("--sequence-parallel", sequence_parallel, "Cut tokens between tensor-parallel regions");
    command.add_option("--cp-mode", cp_mode, "Context parallelism: ring, ulysses or allgather");
    command.add_option("--recompute", recompute, "none, attention, mlp, block or every:N");
    command.add_option("--device", device, "Of every rank: cpu or cuda");
    command.add_option("--timeout", timeout, "Seconds that a rank waits for the others");
  }

  void apply_to(Toml& toml) const {
    const auto set = [&](const char* key, const std::string& value) {
      if (!value.empty()) toml.apply(fmt::format("mesh.{}={}", key, value));
    };
    set("zero", zero), set("hsdp", hsdp), set("schedule", schedule), set("virtual_stages", virtual_stages);
    set("cp_mode", cp_mode), set("recompute", recompute), set("device", device), set("timeout_s", timeout);
    if (sequence_parallel) toml.apply("mesh.sequence_parallel=true");
  }

  bool is_any_given() const {
    Toml toml;
    apply_to(toml);
    return toml.has_section("mesh");
  }

  // "dp=2,tp=2" as mesh.dp=2 and mesh.tp=2; any other key of [mesh] may stand there too.
  static void apply_spec(Toml& toml, const std::string& mesh) {
    for (size_t begin = 0; begin < mesh.size();) {
      const size_t end = std::min(mesh.find(',', begin), mesh.size());
      const std::string axis = mesh.substr(begin, end - begin);
      if (axis.find('=') == std::string::npos)
        throw UsageError("--mesh {}: write axes and sizes, as in dp=2,tp=2", mesh);
      toml.apply("mesh." + axis);
      begin = end + 1;
    }
  }
};

}  // namespace weft::app
