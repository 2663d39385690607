#include <cstdio>
#include <exception>

#include "heed/translation/translator.h"

int main(int argc, char** argv) {
  try {
    const heed::Translator translator(argc > 1 ? argv[1] : "nowhere");
    for (int i = 2; i < argc; ++i)
      std::printf("%s\n", translator.translate({argv[i]})[0].best().text.c_str());
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}
