// The main function of every test executable.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace {

// Of a test that CTest will soon stop as hanging it tells the name and, where gdb is, what each thread is in.
class HangReporter : public testing::EmptyTestEventListener {
 public:
  HangReporter() : thread_([this] { watch(); }) {}
  ~HangReporter() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  static constexpr std::chrono::seconds kLimit{240};  // CTest's own are longer (tests/CMakeLists.txt)

  void OnTestStart(const testing::TestInfo& test) override {
    set_running(std::string(test.test_suite_name()) + "." + test.name());
  }
  void OnTestEnd(const testing::TestInfo&) override { set_running(""); }

  void set_running(std::string name) {
    {
      const std::lock_guard lock(mutex_);
      running_ = std::move(name);
      ++count_;
    }
    changed_.notify_all();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      const int64_t count = count_;
      const auto has_news = [&] { return is_over_ || count_ != count; };
      if (changed_.wait_for(lock, kLimit, has_news)) continue;
      if (!running_.empty()) tell(running_);
      changed_.wait(lock, has_news);
    }
  }

  static void tell(const std::string& name) {
    fmt::print(stderr, "\n[  HANGS?  ] {} runs for {} s\n", name, kLimit.count());
    std::fflush(nullptr);
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const std::string show = fmt::format(
        "exec >&2; command -v gdb >/dev/null || echo 'gdb, which would show where, is not here'; gdb -p {} -batch "
        "-nx -ex "
        "'thread apply all backtrace 30' 2>&1 | grep -E '^(#|Thread)' | cut -c1-200",
        ::getpid());
    if (std::system(show.c_str()) != 0) fmt::print(stderr, "it is not known where\n");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string running_;
  int64_t count_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  // Tests start mpirun as whoever runs them, root too, and with more ranks than cores.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
    setenv(name, "1", /*overwrite=*/0);
  }
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new HangReporter);
  return RUN_ALL_TESTS();
}
