// What the kernels are chosen by: the table of the GPU in use, and which code runs where.
#include "heed/kernels/cuda/capabilities.h"

#include <cstdlib>
#include <string>

#include "tests/cuda/on_gpu.h"

namespace heed::kernels {
namespace {

TEST(CapabilitiesTest, MachineCodeIsOfItsKindAndPtxOfAllLater) {
  struct Row {
    const char* built;
    int compute;
    bool runs;
  };
  for (const auto& [built, compute, runs] : {Row{"80-real", 80, true},
                                             {"80-real", 86, true},
                                             {"80-real", 90, false},
                                             {"86-real", 80, false},
                                             {"80-virtual", 80, true},
                                             {"80-virtual", 120, true},
                                             {"86-virtual", 80, false},
                                             {"86", 86, true},
                                             {"86", 100, true},
                                             {"90a", 90, true},
                                             {"90a-real", 90, true},
                                             {"90a-real", 100, false},
                                             {"90a", 120, false},
                                             {"90a-real 80-virtual", 100, true},
                                             {"100-real 120-real", 103, true},
                                             {"100-real 120-real", 110, false},
                                             {"100-real 120-real", 121, true},
                                             {"", 90, false},
                                             {"native", 90, false}})
    EXPECT_EQ(refusal(built, compute).empty(), runs) << built << " on " << compute;
  EXPECT_NE(refusal("80-virtual", 75).find("want compute 8.0 or later"), std::string::npos);
  EXPECT_NE(refusal("90a-real", 89).find("built for 90a-real; build it"), std::string::npos);
}

TEST_F(OnGpu, TheTableIsOfThisGpuOrOfWhatItIsMadeLike) {
  const UseDevice use(Device::cuda);
  cuda_device();  // its GPU is this thread's
  const Capabilities& c = capabilities();
  std::printf("compute %d, code of %d, %d multiprocessors, %zu KiB a block, %s%s%s\n", c.compute,
              c.code, c.multiprocessors, c.shared >> 10, c.cooperative ? "cooperative " : "",
              c.early_launch ? "early launch " : "", c.wgmma ? "wgmma" : "");
  EXPECT_GE(c.compute, 80);
  EXPECT_GE(c.code, 80);
  EXPECT_GE(c.shared, kLeastShared);
  EXPECT_GT(c.multiprocessors, 0);
  EXPECT_TRUE(refusal(architectures(), c.compute).empty() || std::getenv("HEED_CUDA_LIKE"));
  EXPECT_TRUE(!c.early_launch || (c.compute >= 90 && c.code >= 90));
  EXPECT_TRUE(!c.wgmma || c.compute == 90);
  const bool hoppers = architectures().find("90a") != std::string_view::npos;
  if (hoppers && !std::getenv("HEED_CUDA_LIKE") && !std::getenv("CUDA_FORCE_PTX_JIT")) {
    EXPECT_EQ(c.compute == 90, c.wgmma);
    EXPECT_EQ(c.compute == 90, c.wgmma && c.early_launch && c.cooperative);
  }
  if (const char* like = std::getenv("HEED_CUDA_LIKE")) {
    const std::string name(like);
    EXPECT_LE(c.compute, std::stoi(name.substr(0, 1) + name.substr(2)));
    EXPECT_LE(c.shared, size_t{name == "8.0" ? 163u : 99u} << 10);
    EXPECT_LE(c.multiprocessors, name == "8.0" ? 108 : name == "8.6" ? 72 : 58);
    EXPECT_FALSE(c.wgmma);
    EXPECT_FALSE(c.early_launch);
  }
}

}  // namespace
}  // namespace heed::kernels
