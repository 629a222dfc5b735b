// Drives a fuzz target where libFuzzer is not at hand (g++): replays the corpus, then feeds it seeded mutations of it.
//
//   fuzz_gguf [--seconds=N] [--seed=N] [FILE or FOLDER]…
//
// A failure is a crash or a sanitizer report; the input in hand is then found in ./fuzz_crash_input.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Seeds that a target makes itself; the default is none.
extern "C" __attribute__((weak)) void BatonFuzzSeeds(std::vector<std::string>* seeds) { (void)seeds; }

namespace {

constexpr size_t kInputBytesMax = 1 << 20;
constexpr int kMutationsMax = 8;

const std::string* input_in_hand = nullptr;

void SaveInputInHand(int signal_number) {
  if (input_in_hand != nullptr) {
    if (std::FILE* file = std::fopen("fuzz_crash_input", "wb")) {
      std::fwrite(input_in_hand->data(), 1, input_in_hand->size(), file);
      std::fclose(file);
    }
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void RunOne(const std::string& input) {
  input_in_hand = &input;
  // A copy of exact size, so that a sanitizer sees one byte too many.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  input_in_hand = nullptr;
}

void AddFile(const std::filesystem::path& path, std::vector<std::string>& corpus) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (content.size() <= kInputBytesMax) corpus.push_back(std::move(content));
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Mutate(const std::vector<std::string>& corpus) {
    std::string input = corpus[Below(corpus.size())];
    const size_t times = 1 + Below(kMutationsMax);
    for (size_t i = 0; i < times; ++i) MutateOnce(corpus, input);
    return input;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  void MutateOnce(const std::vector<std::string>& corpus, std::string& input) {
    if (input.empty()) input.push_back(static_cast<char>(random_()));
    const size_t at = Below(input.size());
    switch (Below(7)) {
      case 0: input[at] = static_cast<char>(input[at] ^ (1 << Below(8))); return;
      case 1: input[at] = static_cast<char>(random_()); return;
      case 2: input.resize(at); return;
      case 3: input.erase(at, 1 + Below(16)); return;
      case 4: input.insert(at, input, Below(input.size()), 1 + Below(32)); break;
      case 5: WriteInteresting(at, input); return;
      case 6: {
        const std::string& other = corpus[Below(corpus.size())];
        if (!other.empty()) input.insert(at, other, Below(other.size()), 1 + Below(64));
        break;
      }
    }
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
  }

  // Integers at the edges, 1 to 8 bytes wide.
  void WriteInteresting(size_t at, std::string& input) {
    constexpr uint64_t kValues[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000,
                                    0xffffffff, uint64_t{1} << 32, uint64_t{1} << 62,
                                    uint64_t{1} << 63, UINT64_MAX - 7, UINT64_MAX};
    const uint64_t value = kValues[Below(std::size(kValues))];
    const size_t width = size_t{1} << Below(4);
    for (size_t i = 0; i < width && at + i < input.size(); ++i) {
      input[at + i] = static_cast<char>(value >> (8 * i));
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1;
  double seconds = 0;
  std::vector<std::string> corpus;
  BatonFuzzSeeds(&corpus);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--seconds=", 0) == 0) {
      seconds = std::atof(argument.c_str() + 10);
    } else if (argument.rfind("--seed=", 0) == 0) {
      seed = std::strtoull(argument.c_str() + 7, nullptr, 10);
    } else if (std::filesystem::is_directory(argument)) {
      std::vector<std::filesystem::path> files;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argument)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
      std::sort(files.begin(), files.end());
      for (const auto& path : files) AddFile(path, corpus);
    } else {
      AddFile(argument, corpus);
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus\n");
    return 1;
  }
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) {
    std::signal(signal_number, SaveInputInHand);
  }

  for (const std::string& input : corpus) RunOne(input);
  Mutator mutator(seed);
  uint64_t mutations = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds)) {
    RunOne(mutator.Mutate(corpus));
    ++mutations;
  }
  std::printf("corpus %zu inputs, %llu mutations with seed %llu, no crash\n", corpus.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
  return 0;
}
