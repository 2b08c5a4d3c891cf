// MetricsFile: each line is JSON with the contract's keys, and a resume leaves every step once.
#include "weft/train/metrics.h"

#include <gtest/gtest.h>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"

namespace weft {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  const std::string text = slurp(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end == text.npos ? text.size() : end + 1;
  }
  return lines;
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const nlohmann::json& line : lines_of(path)) steps.push_back(line["step"]);
  return steps;
}

StepMetrics example(int64_t step) {
  static constexpr int64_t peaks[] = {1000, 2000};
  return {.step = step,
          .loss = 3.25,
          .grad_norm = 0.9,
          .lr = 1e-3,
          .tokens = 655360,
          .tokens_per_s = 12345.5,
          .step_s = 0.53,
          .mfu = 0.41,
          .hfu = 0.5,
          .peak_bytes = peaks,
          .comm_s = 0.01,
          .bubble = 0};
}

TEST(MetricsFile, WritesTheKeysOfTheContract) {
  const TempFolder folder;
  MetricsFile file(FileSystem::real(), folder.path("metrics.jsonl"), -1);
  file.write(example(10));
  file.write_eval(10, {2.5});
  file.write_eval(10, {0.5, Validation::Preference{0.75, 1.25}});
  const auto lines = lines_of(folder.path("metrics.jsonl"));  // without closing the file: lines are flushed
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], nlohmann::json::parse(R"({"step":10,"loss":3.25,"grad_norm":0.9,"lr":0.001,"tokens":655360,
      "tokens_per_s":12345.5,"step_s":0.53,"mfu":0.41,"hfu":0.5,"peak_bytes":[1000,2000],"comm_s":0.01,
      "bubble":0.0})"));
  EXPECT_EQ(lines[1], nlohmann::json::parse(R"({"step":10,"eval_loss":2.5})"));
  EXPECT_EQ(lines[2],
            nlohmann::json::parse(R"({"step":10,"eval_loss":0.5,"eval_accuracy":0.75,"eval_margin":1.25})"));
}

TEST(MetricsFile, WritesNullForWhatIsNotFinite) {
  const TempFolder folder;
  MetricsFile file(FileSystem::real(), folder.path("m"), -1);
  StepMetrics metrics = example(1);
  metrics.loss = std::nan(""), metrics.grad_norm = INFINITY, metrics.mfu = -INFINITY;
  file.write(metrics);
  const auto line = lines_of(folder.path("m")).at(0);
  EXPECT_TRUE(line["loss"].is_null() && line["grad_norm"].is_null() && line["mfu"].is_null());
}

TEST(MetricsFile, KeepsEveryBitOfTheLoss) {
  const TempFolder folder;
  MetricsFile file(FileSystem::real(), folder.path("m"), -1);
  StepMetrics metrics = example(1);
  metrics.loss = double(std::nextafter(2.3f, 3.0f));
  file.write(metrics);
  EXPECT_EQ(lines_of(folder.path("m")).at(0)["loss"].get<double>(), metrics.loss);
}

TEST(MetricsFile, ResumesWithEachStepOnce) {
  const TempFolder folder;
  const std::string path = folder.path("metrics.jsonl");
  {
    MetricsFile file(FileSystem::real(), path, -1);
    for (int64_t step = 1; step <= 7; ++step) {
      file.write(example(step));
      if (step % 2 == 0) file.write_eval(step, {1});
    }
  }
  {
    MetricsFile file(FileSystem::real(), path, 4);
    EXPECT_EQ(steps_of(path), (std::vector<int64_t>{1, 2, 2, 3, 4, 4}));
    file.write(example(5));
  }
  EXPECT_EQ(steps_of(path), (std::vector<int64_t>{1, 2, 2, 3, 4, 4, 5}));
  { const MetricsFile anew(FileSystem::real(), path, -1); }
  EXPECT_EQ(slurp(path), "");
}

TEST(MetricsFile, DropsWhatACrashLeft) {
  const TempFolder folder;
  const std::string good = "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n";
  for (const char* rest : {"", "{\"step\":3,\"lo", "{\"step\":3,\"loss\":1}", "\n", "{\"step\":", "noise\n",
                           "{\"step\":99999999999999999999,\"loss\":1}\n", "{\"step\":}\n"}) {
    const std::string path = folder.write("m", good + rest);
    folder.write("m.tmp", "left behind");
    const MetricsFile file(FileSystem::real(), path, 10);
    EXPECT_EQ(slurp(path), good) << rest;
  }
}

}  // namespace
}  // namespace weft
