// search: all layouts of a number of devices, ranked by time, cost or memory, with why the others lose.
#pragma once
#include <functional>
#include <optional>

#include "weft/plan/step_plan.h"

namespace weft::plan {

// By the time of a step; by the device-hours of a token, for which fewer devices are tried too; by what the fullest
// device holds.
enum class RankBy : uint8_t { time, cost, memory };
inline constexpr std::string_view kRankByNames[] = {"time", "cost", "memory"};

struct SearchRequest {
  ModelConfig model;  // complete
  int64_t seq_len = 0;
  int64_t global_batch = 0;  // rows
  Precision precision = Precision::bf16;
  GradientType gradients = GradientType::fp32;
  OptimizerConfig optimizer;
  Cluster cluster;
  Stack stack;
  PreferenceConfig preference;
  PolicyConfig policy;
  DistillConfig distill;
  std::optional<ModelConfig> teacher;  // of distill.teacher, complete
  RankBy rank_by = RankBy::time;
  // 0, or the only value that is tried.
  int tp = 0, pp = 0, cp = 0, ep = 0;
  int num_full = 12;   // layouts of which the whole step is traced, the most promising first
  int max_times = 16;  // where nothing fits: as many times the devices are tried
  std::function<void(const std::string& what)> progress;  // is told what takes long, before it begins; may be empty
};

// As the recipe has it, its cluster to be filled in; zeros where the recipe says nothing.
SearchRequest search_request(const Recipe& recipe);

struct Candidate {
  Recipe recipe;
  // Of a model of one and two layers, continued to all of them: good enough to order thousands of layouts.
  double rough_step_s = 0, rough_peak_bytes = 0;
  StepPlan plan;  // of those whose whole step was traced
  // Of tokens that a step learns from, with the answers that are made for it.
  double device_hours_per_token() const {
    return recipe.mesh.size() / plan.tokens_per_s * plan.step_with_answers_s() / plan.step_s / 3600;
  }
  std::string loses;  // what it loses on, beside the first
};

struct SearchResult {
  std::vector<Candidate>
      ranked;  // that fit, and that no other beats in time, memory and devices; the first is the choice
  std::vector<Candidate> dominated;  // that another of `ranked` beats in all of these, ranked likewise
  int num_layouts = 0;               // looked at
  int num_fitting = 0;               // of these, by the rough figures
  std::optional<Candidate> nearest;  // where nothing fits: the layout that misses least
  double nearest_missing_bytes = 0;
  int devices_that_fit = 0;  // and how many devices of this kind would do; 0: none up to 16 times as many
};

// Throws UsageError when no layout divides the batch, the layers and the heads at all.
SearchResult search(const SearchRequest& request);

// "tp=8,pp=4,dp=32,zero=1, micro-batch 2, recompute block".
std::string describe_layout(const Recipe& recipe);

// For people who do not know the words: "In words: 8 groups of devices each read their own part ...".
std::string explain_layout(const Recipe& recipe);

}  // namespace weft::plan
