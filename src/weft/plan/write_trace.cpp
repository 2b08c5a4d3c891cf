// write_trace: an event for each span.
#include "weft/plan/write_trace.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft::plan {
namespace {

nlohmann::json event_of(const Span& s) {
  nlohmann::json e = {
      {"ph", "X"},           {"name", s.name},        {"cat", name_of(s.track)},           {"pid", s.rank},
      {"tid", int(s.track)}, {"ts", s.begin_s * 1e6}, {"dur", (s.end_s - s.begin_s) * 1e6}};
  nlohmann::json& args = e["args"] = nlohmann::json::object();
  if (s.stage >= 0) args["stage"] = s.stage;
  if (s.micro_batch >= 0) args["micro_batch"] = s.micro_batch;
  if (!s.group.empty()) args["group"] = s.group;
  if (s.bytes > 0) args["bytes"] = s.bytes;
  return e;
}

}  // namespace

std::string trace_json(const Timeline& timeline) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* comma = "\n";
  const auto add = [&](const nlohmann::json& event) {
    out += comma + to_json_text(event);
    comma = ",\n";
  };
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", timeline.ranks[rank]}}}});
  for (const Span& s : timeline.spans) add(event_of(s));
  return out + "\n]}\n";
}

}  // namespace weft::plan
