// A style sheet that a script imports is its text (web/build.mjs).
declare module '*.css' {
  const text: string;
  export default text;
}
