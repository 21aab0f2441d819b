import { defineConfig } from "vite";

// Built into the workspace's target folder, from where the binary takes it.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../target/web",
    emptyOutDir: true,
    target: "es2022",
    // The policy of the page allows no data: addresses and nothing written into it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
