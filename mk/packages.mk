# What Debian's packages bring, a line each; mk/config.mk reads this, and so does tools/install_deps.sh.
# needed: to build anything. tests: what `make test` runs besides. The rest are parts of tern that it
# can be built without: a part is there where pkg-config finds its modules.
PACKAGES_needed   := gcc make libc6-dev pkg-config libpcre2-dev libutf8proc-dev libedit-dev
PACKAGES_gz       := zlib1g-dev
PACKAGES_memory   := libsqlite3-dev
PACKAGES_images := libjpeg-dev libpng-dev libwebp-dev libgif-dev
PACKAGES_sounds   := libsndfile1-dev libsoxr-dev
PACKAGES_serve    := libevent-dev libssl-dev
PACKAGES_pull     := libcurl4-openssl-dev
PACKAGES_tests    := g++ python3 python3-numpy openssl

MODULES_gz       := zlib
MODULES_memory   := sqlite3
MODULES_images := libjpeg libpng libwebp libwebpdemux libgif
MODULES_sounds   := sndfile soxr
MODULES_serve    := libevent_openssl openssl
MODULES_pull     := libcurl

PARTS := gz memory images sounds serve pull
BRINGS_gz       := tern data: compressed text
BRINGS_memory   := tern memory, tern ask
BRINGS_images := tern run --image, tern classify
BRINGS_sounds   := tern transcribe, tern speak
BRINGS_serve    := tern serve
BRINGS_pull     := tern pull, servers by address in tern agent and tern bench
