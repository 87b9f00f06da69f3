// Before the first paint: the theme that the visitor has chosen.
{
  const theme = localStorage.getItem("onefold-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
