-- The identity of the installation. Only for a schema that has onefold.meta.
select m.value from onefold.meta as m where m.name = 'identity'
