// ServeEngine: a model behind an engine on the ranks of a mesh, with what the API needs to talk with it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "command.h"
#include "forward_ranks.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/continuous_engine.h"

namespace weft::app {

struct EngineOptions {
  ForwardOptions forward;
  std::string name, template_file, tool_format;
  ContinuousOptions engine;
  std::vector<std::string> adapters;  // "name=folder"
  std::string adapter_folder, draft;
  bool without_prefixes = false;
  int num_models = 1;  // that share the memory of this machine
  Output output;
  void add_to(CLI::App& command);
};

// "name=folder", as `option` has it. Throws UsageError.
std::pair<std::string, std::string> split_name(const char* option, const std::string& text);

// Serves on every rank of the mesh. on_speaker is called on the rank that speaks; it runs the engine, and the others
// serve until that stops.
using OnSpeaker = std::function<void(ContinuousEngine& engine, const api::ServedModel& model)>;
void run_engine(const EngineOptions& options, const OnSpeaker& on_speaker);

}  // namespace weft::app
